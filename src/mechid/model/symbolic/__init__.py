"""Mechanisms written down in symbols: a Lagrangian, equations of motion, SymPy's own methods, or a text file."""

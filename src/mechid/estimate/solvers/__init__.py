"""Solvers as strategy objects: each finds the parameters that make a cost small, and tells how it went."""

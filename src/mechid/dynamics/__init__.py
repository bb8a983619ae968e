"""How a mechanism moves, step by step, and how its motion depends on its numbers."""

"""What data can tell: which parameters act at all, and which can be told apart."""

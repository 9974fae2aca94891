"""Matchers read IR and never change it: each operation becomes a typed node."""

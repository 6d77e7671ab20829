"""Solving a problem: the algorithm is chosen and run, and its result is certified."""

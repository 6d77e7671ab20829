"""Worst cases over, and projections onto, sets of weights on the simplex."""

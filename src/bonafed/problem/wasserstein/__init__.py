"""Wasserstein balls round a client's rows, their supports and worst cases."""

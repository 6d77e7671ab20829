"""Algorithms as pairs of pure functions; no engine is known here."""

"""Runs: rows read and split, models trained, evaluated, stored and verified."""

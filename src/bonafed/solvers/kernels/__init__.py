"""Compiled inner loops over plain arrays."""

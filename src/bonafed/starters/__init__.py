"""Commented configurations that `bonafed init` writes."""

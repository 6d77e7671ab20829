"""Commented configurations that `quorate init` writes."""

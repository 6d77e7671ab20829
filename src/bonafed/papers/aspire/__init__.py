"""Jiao, Yang, Song, *Distributed DRO with non-convex objectives*."""

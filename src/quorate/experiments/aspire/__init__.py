"""Experiments of Jiao, Yang, Song, *Distributed distributionally robust optimization with non-convex objectives*."""

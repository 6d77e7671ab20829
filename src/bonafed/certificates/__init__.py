"""Certificates: guarantees about a model, recomputed from (problem, data, model, duals) alone.

No module here knows an algorithm.
"""

"""Certificates: guarantees about a model, recomputed from (problem, data, model, duals) only.

No module here knows an algorithm.
"""

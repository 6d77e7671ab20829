"""FLARE and Flower on one machine: for trying a run out before organisations take part, for tests
and for benchmarks.
"""

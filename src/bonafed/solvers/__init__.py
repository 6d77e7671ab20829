"""Small problems that many algorithms share: projections, root finding, conic programs, kernels.

No module here knows a problem.
"""

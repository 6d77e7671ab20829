"""Small problems that many algorithms share: proxes, projections, root finding, conic programs; no problem is known."""

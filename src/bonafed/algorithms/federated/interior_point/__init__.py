"""A federated interior-point method for convex problems with constraints."""

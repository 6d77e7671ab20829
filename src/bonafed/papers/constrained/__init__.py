"""He, Peng, Sun, *Federated learning with convex global and local constraints*."""

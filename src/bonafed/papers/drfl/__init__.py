"""W. Bai, Y. Wong, X. Qiao, C. P. Ho, *Distributionally robust federated learning*."""

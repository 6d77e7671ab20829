"""ADMM for risks that weigh losses by their rank, on the rows of one client."""

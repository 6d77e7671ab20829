"""Sums of clients' vectors of which the server learns nothing but the sum."""

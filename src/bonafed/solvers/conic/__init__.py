"""Conic programs: the server's master problem and the sets of weights in conic form."""

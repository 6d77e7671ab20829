"""Constraints c(w) <= 0 and c(w) = 0 on the server's data, on every client's, and over all of
them.
"""

"""Data: named clients and their rows, tables and their schema, partitions, corruption, and the
papers' data sets.
"""

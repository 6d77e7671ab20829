"""A room for each paper: its methods, baselines, instances, tables and figures, as it has them.

Nothing outside imports a room, and no room imports another.
"""

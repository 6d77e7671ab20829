"""A data owner's site: what it is, what it lets others compute, and the log of what it answered."""

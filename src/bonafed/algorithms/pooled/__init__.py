"""Methods that need all rows in one place."""

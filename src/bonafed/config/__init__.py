"""A run as a TOML file: its tables, their checks, and the objects they name."""

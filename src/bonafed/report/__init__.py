"""A finished run for people: tables, figures, and one self-contained HTML file."""

"""Real sites: what a data owner allows, logs and answers, and the server that asks."""

"""Private Newton steps, for models of few features."""

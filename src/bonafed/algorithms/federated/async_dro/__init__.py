"""AsyncDRO: asynchronous distributionally robust optimisation with stored gradients."""

"""What the private methods are made of: the plan of their noise, and clients' noisy gradients."""

"""Methods that quorate's methods are compared with: averaging, agnostic, stochastic, central."""

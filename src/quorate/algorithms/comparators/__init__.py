"""The methods with which quorate's are compared: averaging, agnostic, stochastic, central."""

"""The methods with which bonafed's are compared: averaging, agnostic, stochastic, central."""

"""Risks over clients or samples: numbers in, one number and its weights out."""

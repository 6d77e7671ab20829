"""scikit-learn estimators and scorers; each file imports scikit-learn."""

"""A proximal augmented Lagrangian method whose subproblems are solved by inexact ADMM."""

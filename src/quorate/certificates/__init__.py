"""Certificates: what is guaranteed about a model, recomputed from (problem, data, model, duals); no algorithm here."""

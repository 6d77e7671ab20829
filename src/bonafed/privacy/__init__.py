"""Differential privacy: the budget, mechanisms and their noise, accounting, and the ledger."""

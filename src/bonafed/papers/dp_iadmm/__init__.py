"""Ryu and Kim, *Differentially private federated learning via inexact ADMM*.

Each experiment is shown beside the total privacy budget that it spends.
"""

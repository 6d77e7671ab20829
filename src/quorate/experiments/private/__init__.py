"""Experiments of Ryu and Kim, *Differentially private federated learning via inexact ADMM*, and totals beside them."""

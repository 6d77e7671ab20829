"""Differentially private inexact ADMM."""

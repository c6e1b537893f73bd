"""Solvers with certified error."""

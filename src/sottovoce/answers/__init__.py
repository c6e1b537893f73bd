"""Answers that people ask a model for, from bounded sums: coefficients with intervals, quality,
regression.
"""

"""Graphs of sites, the exchange of vectors with neighbours, and simulated loss of sites."""

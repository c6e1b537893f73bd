"""Graphs, and the exchange with neighbours."""

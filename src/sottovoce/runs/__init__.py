"""Runs, from configuration to result: they are checked, priced, chosen, tried on made-up rows, and carried out."""

"""A run from its configuration to its result: checked, priced, chosen, tried on made-up rows, and carried out."""

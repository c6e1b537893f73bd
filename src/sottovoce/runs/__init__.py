"""Runs, from configuration to result: checked, priced, chosen, rehearsed on synthetic rows, and
carried out.
"""

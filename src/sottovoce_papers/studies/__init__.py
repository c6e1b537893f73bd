"""Studies: experiments that a TOML file describes, run cell by cell, with tables, figures and a
page for each.
"""

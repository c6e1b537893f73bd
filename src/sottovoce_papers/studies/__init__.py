"""Studies: experiments that a TOML file describes, each with a table, figures and a page.

A *cell* is one combination of a study's parameters; its *kind* is the function that runs it
(:mod:`.kinds`).  A *claim* is a sentence of a paper with a test over the table; its *verdict* says
whether it holds.  :mod:`.spec` reads the file, :mod:`.run` runs the cells, :mod:`.verdicts` judges
the claims, :mod:`.figures` draws, and :mod:`.page` writes the page.
"""

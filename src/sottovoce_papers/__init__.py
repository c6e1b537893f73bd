"""Everything that concerns only the papers: their claims, theorems, aggregators and experiments.

The papers go by their file numbers, 000 to 004 (docs/explanation/papers.md).  The package is a
plug-in of :mod:`sottovoce`, like any other: it is found by entry points
(:mod:`sottovoce.util.plugins`) and uses the library's public modules, which
``scripts/check_imports.py`` lists. The library never imports it.
"""

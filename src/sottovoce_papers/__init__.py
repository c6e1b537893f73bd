"""What concerns the papers alone: their claims, theorems, aggregators and experiments.

It is to :mod:`sottovoce` what any other package is that brings something of its own.  It comes in
by entry points (:mod:`sottovoce.util.plugins`) and reaches the library by its public modules, which
``scripts/check_imports.py`` lists. The library never imports it.
"""

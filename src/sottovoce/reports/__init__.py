"""A run's answers for people who did not run it: coefficients, quality, cost and promise, from its plain data.

:func:`page` makes a self-contained page of a document such as ``run.json``, :func:`sections` the parts of it that other
pages take over, and :func:`picture` its plot of intervals as a file of its own.  They show what was released, and
nothing else unless they are asked.  A document may come from anybody: every text is escaped, and one that holds
something else is refused.
"""

from .page import STYLE, page, sections
from .picture import picture

__all__ = ["STYLE", "page", "picture", "sections"]

"""Reports of a run for people who did not run it: coefficients, quality, cost and promise, from its
plain data.

They show what was released, and exact numbers only on request.  A document may come from anybody:
every text is escaped, and one that holds something else is refused.
"""

from .page import answer, page, sections
from .picture import picture

__all__ = ["answer", "page", "picture", "sections"]

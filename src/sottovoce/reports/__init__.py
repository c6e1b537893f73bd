"""Reports of a run for people who did not run it: coefficients, quality, cost and guarantee.

Input is a run's record: the plain data (dicts, lists, numbers, texts) that ``train --save`` stores
and ``train --json`` prints.  Reports show what was released, and numbers without noise only on
request.  A record may come from anybody: every text is escaped, and a document that is no record is
refused.
"""

from .page import answer, page, sections
from .paragraphs import data_protection, statistical_methods
from .picture import picture

__all__ = ["answer", "data_protection", "page", "picture", "sections", "statistical_methods"]

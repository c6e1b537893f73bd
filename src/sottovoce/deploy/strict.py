"""JSON from other parties, such as plans and messages, read strictly and in bounded memory."""

from __future__ import annotations

import json

from ..util.codec import Unreadable
from ..util.files import parse_bounded_json
from ..util.typing import Any

MOST = 1_000_000
"""The most lists and objects in a text; each takes some sixty bytes of memory, even if it is empty
and has two characters.
"""


class NotStrict(ValueError):
    """The reason why a text was refused, to follow "it", such as ``is not JSON``.

    It shows nothing of the text itself.
    """


def reason_of_refusal(error: Exception) -> str:
    """Return why a file was refused, as the end of an error's rule: ``: it is not JSON``.

    Empty for an `error` whose message may show something of the file.
    """
    if isinstance(error, NotStrict):
        return f": it {error}"
    if isinstance(error, Unreadable):
        return f": {error}"
    return ""


def parse_json(data: bytes | str, longest: int) -> Any:
    """Return the value of a JSON text of at most `longest` bytes or characters.

    Raises :class:`NotStrict` beyond :data:`MOST` and the bounds of
    :func:`sottovoce.util.files.parse_bounded_json`.
    """
    if len(data) > longest:
        raise NotStrict(f"is longer than {longest:,} bytes")
    try:
        text = data if isinstance(data, str) else data.decode("utf-8")
        # Counted before it is parsed: a short text of brackets would make millions of lists.
        if text.count("[") + text.count("{") > MOST:
            raise NotStrict(f"holds more than {MOST:,} lists and objects")
        return parse_bounded_json(text)
    except UnicodeDecodeError:
        raise NotStrict("is not UTF-8 text") from None
    except json.JSONDecodeError:
        raise NotStrict("is not JSON") from None
    except ValueError as error:
        raise NotStrict(str(error)) from None
    except MemoryError:
        raise NotStrict("is too large") from None

"""Texts that are numbers.

A user property is always text, yet `value>25` must compare numbers, on every node that runs the filter. So a
text that is a number in plain decimal form becomes one when the event is made.
"""

import math
import re

_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]{1,3})?", re.ASCII)
_TEXT_MAX = 40  # chosen by us: longer digit strings are identifiers, not quantities
_INTEGER_MAX = 2**63


def number_in(text: str) -> int | float | None:
    """The number that a text is, in JSON's form; None for any other text (`007`, `+5`, `nan`, `1_000`)."""
    if not text or len(text) > _TEXT_MAX:
        return None
    found = _NUMBER.fullmatch(text)
    if found is None:
        return None
    if found[1] is None and found[2] is None:
        integer = int(text)
        return integer if -_INTEGER_MAX <= integer < _INTEGER_MAX else None
    number = float(text)
    return number if math.isfinite(number) else None

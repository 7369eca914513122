"""Numbers as files write them, read exactly and within bounds.

Times become integer microseconds without passing through a float: `0.1` is 100000, and reading back what was
written gives the same value. More than six decimals are rounded to the nearest microsecond. What Python
accepts but no recording means (`nan`, `inf`, `1_000`, other scripts' digits) is refused.
"""

import re
from decimal import ROUND_HALF_EVEN, Context

from roamcast.errors import FileError
from roamcast.units import SECOND, Micros

# The year 5138 as a Unix time. A larger number is most often a file in milliseconds.
SECONDS_MAX = 10**11
METRES_MAX = 1e9
NAME_LENGTH_MAX = 200

_NUMBER = re.compile(r"[+-]?(?:[0-9]{1,40}(?:\.[0-9]{0,60})?|\.[0-9]{1,60})(?:[eE][+-]?[0-9]{1,3})?")
_EXACT = Context(prec=200, rounding=ROUND_HALF_EVEN)


def time_of(text: str, where: str, what: str = "time") -> Micros:
    """Seconds in decimal notation, on the microsecond grid."""
    if text.isdigit() and text.isascii() and len(text) <= 12:
        time = int(text) * SECOND
    elif _NUMBER.fullmatch(text):
        scaled = _EXACT.create_decimal(text).scaleb(6, _EXACT)
        time = int(scaled.to_integral_value(context=_EXACT)) if scaled.adjusted() < 30 else 10**30
    else:
        raise FileError(where, f"{what} is {shown(text)}, not a number of seconds")
    if time < 0:
        raise FileError(where, f"{what} is {text}; times are 0 s or later")
    if time > SECONDS_MAX * SECOND:
        raise FileError(where, f"{what} is {text} s, beyond {SECONDS_MAX} s; is the file in milliseconds?")
    return time


def number_of(text: str, where: str, what: str) -> float:
    """A finite decimal number."""
    if not _NUMBER.fullmatch(text):
        raise FileError(where, f"{what} is {shown(text)}, not a finite number")
    number = float(text)
    if number in (float("inf"), float("-inf")):
        raise FileError(where, f"{what} is {shown(text)}, not a finite number")
    return number


def metres_of(text: str, where: str, what: str) -> float:
    metres = number_of(text, where, what)
    if abs(metres) > METRES_MAX:
        raise FileError(where, f"{what} is {text}; positions are metres between -1e9 and 1e9")
    return metres


def latitude_of(text: str, where: str) -> float:
    degrees = number_of(text, where, "latitude")
    if not -90.0 <= degrees <= 90.0:
        raise FileError(where, f"latitude is {text}; it lies between -90 and 90 degrees")
    return degrees


def longitude_of(text: str, where: str) -> float:
    degrees = number_of(text, where, "longitude")
    if not -180.0 <= degrees <= 180.0:
        raise FileError(where, f"longitude is {text}; it lies between -180 and 180 degrees")
    return degrees


def name_of(text: str, where: str, what: str = "node") -> str:
    """A node's name: anything printable that is not empty."""
    if not text or len(text) > NAME_LENGTH_MAX or not text.isprintable():
        raise FileError(
            where, f"{what} is {shown(text)}; a name is 1 to {NAME_LENGTH_MAX} printable characters"
        )
    return text


def name_order(name: str) -> tuple[bool, int, str]:
    """The order in which names become node numbers: whole numbers by value, then texts."""
    is_number = name.isascii() and name.isdigit()
    return (not is_number, int(name) if is_number else 0, name)


def seconds_text(time: Micros) -> str:
    """Exact seconds, without needless zeros: 12500000 is `12.5`."""
    sign = "-" if time < 0 else ""
    whole, rest = divmod(abs(time), SECOND)
    return f"{sign}{whole}" + (f".{rest:06d}".rstrip("0") if rest else "")


def shown(text: str) -> str:
    """A piece of a file as it may appear in a one-line message."""
    return repr(text if len(text) <= 40 else text[:40] + "…")

"""The numbers that everything shares: node identifiers and integer time.

Time inside is integer microseconds; seconds occur only in files, reports and command lines.
"""

from typing import TypeAlias

NodeId: TypeAlias = int
Micros: TypeAlias = int

MILLISECOND: Micros = 1_000
SECOND: Micros = 1_000_000


def micros(seconds: float) -> Micros:
    """Seconds as written by people, on the integer grid."""
    return round(seconds * SECOND)


def seconds(time: Micros) -> float:
    """Microseconds as people read them."""
    return time / SECOND

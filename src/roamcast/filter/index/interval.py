"""Closed intervals of float64: what can be checked for many conjunctions in one numpy operation.

Only where that is exact. Python compares an int of more than 53 bits with a float digit by digit and
numpy would round it first, so the filter decides on such constants (and events with such values).
"""

import math
from collections.abc import Iterable
from typing import NamedTuple

from roamcast.event import Value
from roamcast.filter.expression import Compare, Expression, Operator

EXACT_MAX = 2**53


class Interval(NamedTuple):
    low: float
    high: float


def interval_of(leaves: Iterable[Expression]) -> Interval | None:
    """The numbers for which all leaves (on one attribute) are true; None where this form cannot say."""
    low, high = -math.inf, math.inf
    for leaf in leaves:
        if not isinstance(leaf, Compare) or isinstance(leaf.value, bool | str):
            return None
        if not is_exact(leaf.value):
            return None
        value = float(leaf.value)
        match leaf.operator:
            case Operator.EQUAL:
                low, high = max(low, value), min(high, value)
            case Operator.LESS:
                high = min(high, math.nextafter(value, -math.inf))
            case Operator.LESS_OR_EQUAL:
                high = min(high, value)
            case Operator.GREATER:
                low = max(low, math.nextafter(value, math.inf))
            case Operator.GREATER_OR_EQUAL:
                low = max(low, value)
            case Operator.NOT_EQUAL:
                return None
    return Interval(low, high)


def is_exact(value: int | float) -> bool:
    """Whether it is finite, and the same number as a float64."""
    return math.isfinite(value) if isinstance(value, float) else -EXACT_MAX <= value <= EXACT_MAX


def as_float(value: Value) -> float | None:
    """For a number the same number; NaN, which is in no interval, for all else; None where it rounds."""
    if isinstance(value, float):
        return value
    if isinstance(value, bool) or not isinstance(value, int):
        return math.nan
    return float(value) if is_exact(value) else None

"""Numbers as text, with no more digits than are known."""

import math

from roamcast.lab.sweep.summary import SampleMean

DECIMALS_MAX = 6


def number(value: float | None, digits: int = 4) -> str:
    """A number with this many significant digits; `–` for no value."""
    if value is None:
        return "–"
    if value == 0:
        return "0"
    return _fixed(value, digits - 1 - math.floor(math.log10(abs(value))))


def with_interval(found: SampleMean) -> str:
    """`0.912 ± 0.013`: the mean, and half the width of its 95% confidence interval."""
    if found.mean is None or found.ci_high is None:
        return number(found.mean)
    half = found.ci_high - found.mean
    if half <= 1e-12 * abs(found.mean):
        return f"{number(found.mean)} ± 0"
    decimals = 1 - math.floor(math.log10(half))
    return f"{_fixed(found.mean, decimals)} ± {_fixed(half, decimals)}"


def interval(low: float | None, high: float | None) -> str:
    """`0.90 to 0.93`, to two digits of the width."""
    if low is None or high is None:
        return "–"
    if high - low <= 1e-12 * max(abs(low), abs(high)):
        return f"{number(low)} to {number(high)}"
    decimals = 1 - math.floor(math.log10(high - low))
    return f"{_fixed(low, decimals)} to {_fixed(high, decimals)}"


def probability(p: float | None) -> str:
    if p is None:
        return "–"
    return "< 0.0001" if p < 0.0001 else f"{p:.4f}" if p < 0.01 else f"{p:.3f}"


def numbered(values: list[int]) -> str:
    """`1 to 10`, or the list itself where it has gaps."""
    if len(values) > 2 and values == list(range(values[0], values[0] + len(values))):
        return f"{values[0]} to {values[-1]}"
    return ", ".join(str(value) for value in values)


def _fixed(value: float, decimals: int) -> str:
    text = f"{round(value, decimals):,.{max(0, min(decimals, DECIMALS_MAX))}f}"
    text = "0" if float(text.replace(",", "")) == 0 and decimals <= 0 else text
    return text.replace("-", "−")

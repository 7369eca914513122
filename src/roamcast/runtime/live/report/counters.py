"""What a node counts about itself, and how Prometheus reads it.

Names are those of the endpoint without the prefix `roamcast_`; `metric_help.py` says what each means. Nothing
that comes from the air or from a client becomes a label, but for the numbers of the 64 peers heard last. So
the program fixes the number of series; `SERIES_MAX` bounds it all the same.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

from roamcast.runtime.live.report.metric_help import HELP

PREFIX = "roamcast_"
SERIES_MAX = 10_000

Series: TypeAlias = tuple[str, tuple[tuple[str, str], ...]]
"""A name and its labels."""


class Count:
    """One counter, for callers that count often and keep it."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value: float = 0


class Counters:
    def __init__(self) -> None:
        self._counts: dict[Series, Count] = {}
        self._gauges: dict[Series, Callable[[], float]] = {}
        self._families: dict[str, tuple[str, Callable[[], Iterable[tuple[str, float]]]]] = {}

    def count(self, name: str, amount: float = 1, **labels: str) -> None:
        """Add to a counter; names end in `_total`."""
        self.counter(name, **labels).value += amount

    def counter(self, name: str, **labels: str) -> Count:
        """The counter itself."""
        series = (name, tuple(labels.items()))
        found = self._counts.get(series)
        if found is None:
            found = Count()
            if len(self._counts) < SERIES_MAX:
                self._counts[series] = found
        return found

    def gauge(self, name: str, read: Callable[[], float], **labels: str) -> None:
        """A value that is read whenever the endpoint is asked; one whose name ends in `_total` only grows."""
        self._gauges[name, tuple(labels.items())] = read

    def family(self, name: str, label: str, read: Callable[[], Iterable[tuple[str, float]]]) -> None:
        """Values by one label that comes and goes, a bounded number of them."""
        self._families[name] = (label, read)

    def value(self, name: str, **labels: str) -> float:
        """What a counter has reached; 0 for one that never counted."""
        found = self._counts.get((name, tuple(labels.items())))
        return 0 if found is None else found.value

    def reading(self, name: str) -> float | None:
        """What a gauge reads now, the sum over all labels; None: there is none of that name."""
        found = [read() for (of, _), read in self._gauges.items() if of == name]
        return sum(found) if found else None

    def total(self, name: str) -> float:
        """The sum over all labels."""
        return sum(found.value for (of, _), found in self._counts.items() if of == name)

    def to_text(self) -> str:
        """The text format of Prometheus, version 0.0.4."""
        values: dict[Series, float] = {series: found.value for series, found in self._counts.items()}
        values.update({series: read() for series, read in self._gauges.items()})
        for name, (label, read_all) in self._families.items():
            values.update({(name, ((label, text),)): value for text, value in read_all()})
        return "\n".join(_lines(values)) + "\n"


def _lines(values: Mapping[Series, float]) -> list[str]:
    lines: list[str] = []
    described = ""
    for (name, labels), value in sorted(values.items()):
        if name != described:
            if name in HELP:
                lines.append(f"# HELP {PREFIX}{name} {_escaped(HELP[name])}")
            lines.append(f"# TYPE {PREFIX}{name} {'counter' if name.endswith('_total') else 'gauge'}")
            described = name
        inside = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels)
        lines.append(f"{PREFIX}{name}{f'{{{inside}}}' if inside else ''} {_number(value)}")
    return lines


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")

"""What a node counts about itself, and how Prometheus reads it.

Names are those of the endpoint without the prefix `roamcast_`. Nothing that comes from the air or from a
client becomes a label, so the number of series is fixed by the program; `SERIES_MAX` bounds it all the same.
"""

from collections.abc import Callable, Mapping
from typing import TypeAlias

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
        """A value that is read whenever the endpoint is asked."""
        self._gauges[name, tuple(labels.items())] = read

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
        lines: list[str] = []
        _write(lines, "counter", {series: found.value for series, found in self._counts.items()})
        _write(lines, "gauge", {series: read() for series, read in self._gauges.items()})
        return "\n".join(lines) + "\n"


def _write(lines: list[str], kind: str, values: Mapping[Series, float]) -> None:
    described = ""
    for (name, labels), value in sorted(values.items()):
        if name != described:
            lines.append(f"# TYPE {PREFIX}{name} {kind}")
            described = name
        inside = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels)
        lines.append(
            f"{PREFIX}{name}{{{inside}}} {value:g}" if inside else f"{PREFIX}{name} {_number(value)}"
        )


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")

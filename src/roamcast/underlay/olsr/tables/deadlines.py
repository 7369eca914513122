"""A bounded table of things that hold until a deadline: selectors, associations, gateways.

Unlike an `ExpiringDict` (`bounded.py`) it refuses new entries when it is full, so that forged ones cannot
push out others.
"""

from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

from roamcast.units import Micros

Thing = TypeVar("Thing", bound=Hashable)


class Deadlines(Generic[Thing]):
    def __init__(self, length_max: int) -> None:
        self._length_max = length_max
        self.until: dict[Thing, Micros] = {}  # to look into; a purge may replace it

    def hold(self, thing: Thing, until: Micros) -> bool:
        """Remember or renew. False if there was no room."""
        if thing not in self.until and len(self.until) >= self._length_max:
            return False
        self.until[thing] = until
        return True

    def release(self, thing: Thing) -> None:
        self.until.pop(thing, None)

    def purge(self, now: Micros) -> tuple[bool, Micros | None]:
        """Whether anything has expired, and the next deadline."""
        first = min(self.until.values(), default=None)
        if first is None or now < first:
            return False, first
        self.until = {thing: until for thing, until in self.until.items() if now < until}
        return True, min(self.until.values(), default=None)

    def __contains__(self, thing: object) -> bool:
        return thing in self.until

    def __iter__(self) -> Iterator[Thing]:
        return iter(self.until)

    def __len__(self) -> int:
        return len(self.until)

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
        self._until: dict[Thing, Micros] = {}

    def hold(self, thing: Thing, until: Micros) -> bool:
        """Remember or renew. False if there was no room."""
        if thing not in self._until and len(self._until) >= self._length_max:
            return False
        self._until[thing] = until
        return True

    def release(self, thing: Thing) -> None:
        self._until.pop(thing, None)

    def purge(self, now: Micros) -> tuple[bool, Micros | None]:
        """Whether anything has expired, and the next deadline."""
        before = len(self._until)
        if any(until <= now for until in self._until.values()):
            self._until = {thing: until for thing, until in self._until.items() if now < until}
        return len(self._until) < before, min(self._until.values(), default=None)

    def __contains__(self, thing: object) -> bool:
        return thing in self._until

    def __iter__(self) -> Iterator[Thing]:
        return iter(self._until)

    def __len__(self) -> int:
        return len(self._until)

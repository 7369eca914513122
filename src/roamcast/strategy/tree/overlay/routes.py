"""The ways that requests took and that replies and activations take (A.1, data structures 3 and 4).

Entries are kept for a while and at most `ENTRIES_MAX` of them: the periodic removal that appendix A asks
for, done when a new entry comes.
"""

from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from roamcast.strategy.tree.overlay.label import Label
from roamcast.units import SECOND, Micros, NodeId

ENTRIES_MAX = 1_000
KEPT: Micros = 30 * SECOND

Key = TypeVar("Key")
Value = TypeVar("Value")


class RequestKey(NamedTuple):
    """Which request a message belongs to."""

    requester: NodeId
    number: int


@dataclass(slots=True)
class Reverse:
    """Where a request came from: along its own tree, and after it left the tree (OverlayLimited)."""

    label: Label  # of the requester
    free: NodeId | None = None
    limited: NodeId | None = None
    answers: int = 0  # beyond the first, to copies that came by other ways


class ForwardRoute(NamedTuple):
    """Where a reply came from. With `jump`, over the hop that an activation will make a tree link."""

    via: NodeId
    label: Label  # of the node at the other end of the jump
    hops: int  # the reply's distance to the leader, counted to here
    jump: bool
    yields: bool
    link: int  # the link offered; 0 if none
    url: str


class ExpiringDict(Generic[Key, Value]):
    """A dictionary that forgets."""

    def __init__(self) -> None:
        self._entries: dict[Key, tuple[Micros, Value]] = {}

    def put(self, key: Key, value: Value, now: Micros) -> None:
        self._entries.pop(key, None)  # so that the dictionary stays in order of age
        self._entries[key] = (now, value)
        while self._entries:
            oldest = next(iter(self._entries))
            if len(self._entries) <= ENTRIES_MAX and self._entries[oldest][0] >= now - KEPT:
                break
            del self._entries[oldest]

    def find(self, key: Key) -> Value | None:
        entry = self._entries.get(key)
        return None if entry is None else entry[1]

    def __len__(self) -> int:
        return len(self._entries)

"""Reverse and forward routes: where requests came from, where replies came from (A.1, structures 3 and 4).

Entries are kept for a while and at most `ENTRIES_MAX` of them: the periodic removal that appendix A asks
for, done when a new entry comes.
"""

from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from roamcast.kit.tables import BoundedDict, OnEvicted
from roamcast.strategy.tree.overlay.label import Label
from roamcast.units import SECOND, Micros, NodeId

# Chosen by us. With the presets a search takes seconds, so 30 s outlast its messages.
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
    answers: int = 0  # beyond the first, to copies that came by other paths


class ForwardRoute(NamedTuple):
    """Where a reply came from. With `jump`, over the hop that an activation will make a tree link."""

    via: NodeId
    label: Label  # of the node at the other end of the jump
    hops: int  # the reply's distance to the leader, counted to here
    jump: bool
    yields: bool
    link: int  # the link offered; 0 if none
    url: str


class AgingDict(Generic[Key, Value]):
    """A dictionary that forgets what was not put again for `KEPT`."""

    def __init__(self, on_evicted: OnEvicted[object, object]) -> None:
        self._entries: BoundedDict[Key, tuple[Micros, Value]] = BoundedDict(ENTRIES_MAX, on_evicted)

    def put(self, key: Key, value: Value, now: Micros) -> None:
        entries = self._entries
        while entries and next(iter(entries.values()))[0] < now - KEPT:
            entries.popitem(last=False)
        entries.renew(key, (now, value))

    def find(self, key: Key) -> Value | None:
        entry = self._entries.get(key)
        return None if entry is None else entry[1]

    def __len__(self) -> int:
        return len(self._entries)

"""Pass on once, after a delay, unless it is no longer needed.

The receivers of one broadcast would answer all at the same instant, so each waits for a time of its own; what
it hears meanwhile may make its own copy needless. How long to wait and what makes a copy needless is the
strategy's decision: counters (Ni, Tseng, Chen and Sheu, 1999), covered neighbours (Peng and Lu, 2000), or
nothing.

The strategy keeps in `Item` what it heard meanwhile (`find`). Not here: messages that are repeated until they
are acknowledged (`confirm.py`)."""

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from roamcast.host import Host
from roamcast.units import Micros

Key = TypeVar("Key", bound=Hashable)
Item = TypeVar("Item")


class Relay(Generic[Key, Item]):
    def __init__(
        self,
        host: Host,
        *,
        send: Callable[[Key, Item], object],
        most: int,
        is_needed: Callable[[Key, Item], bool] | None = None,
    ) -> None:
        """`is_needed` is asked when the wait is over; without it everything is passed on."""
        self._host = host
        self._send = send
        self._most = most
        self._is_needed = is_needed
        self._waiting: dict[Key, WaitingItem[Key, Item]] = {}

    def add(self, key: Key, item: Item, wait: Micros) -> bool:
        """False if too many wait: the owner says what is lost. A key that waits already keeps its time and
        gets the new item."""
        waiting = self._waiting.get(key)
        if waiting is not None:
            waiting.item = item
            return True
        if len(self._waiting) >= self._most:
            return False
        waiting = self._waiting[key] = WaitingItem(self, key, item)
        self._host.set_timer(waiting, self._host.now() + wait)
        return True

    def find(self, key: Key) -> Item | None:
        """The item that waits under this key."""
        waiting = self._waiting.get(key)
        return None if waiting is None else waiting.item

    @property
    def is_full(self) -> bool:
        return len(self._waiting) >= self._most

    def cancel(self, key: Key) -> None:
        waiting = self._waiting.pop(key, None)
        if waiting is not None:
            self._host.cancel_timer(waiting)

    def due(self, key: Key, item: Item) -> None:
        """The wait is over."""
        del self._waiting[key]
        if self._is_needed is None or self._is_needed(key, item):
            self._send(key, item)


class WaitingItem(Generic[Key, Item]):
    """What waits is the name of its own timer: no name is hashed or compared."""

    __slots__ = ("item", "key", "relay")

    def __init__(self, relay: Relay[Key, Item], key: Key, item: Item) -> None:
        self.relay = relay
        self.key = key
        self.item = item

    def due(self) -> None:
        self.relay.due(self.key, self.item)

"""Connections without an admitted client: their CONNECT has not come yet, or they are being closed.

They are bounded, and whoever comes last is not the one to suffer: an honest client sends CONNECT at once.
When there are too many, the oldest is dropped, of the address that has the most. So thousands of half-open
connections from one place, or from this device, push out each other.
"""

from collections import Counter
from collections.abc import Callable
from typing import Protocol

STRANGERS_MAX = 256  # chosen by us; at most 15 MB of packets that are not whole


class StrangeConnection(Protocol):
    @property
    def address(self) -> str:
        """Where it comes from."""
        ...

    def abandon(self) -> None:
        """Break it at once."""
        ...


class Strangers:
    def __init__(self, on_dropped: Callable[[], None], most: int = STRANGERS_MAX) -> None:
        self._on_dropped = on_dropped
        self._most = most
        self._waiting: dict[StrangeConnection, str] = {}  # with their addresses, oldest first
        self._by_address: Counter[str] = Counter()

    def enter(self, connection: StrangeConnection) -> None:
        if connection in self._waiting:
            return
        if len(self._waiting) >= self._most:
            self._drop_one()
        self._waiting[connection] = connection.address
        self._by_address[connection.address] += 1

    def leave(self, connection: StrangeConnection) -> None:
        """It was admitted, or is gone; again is no error."""
        address = self._waiting.pop(connection, None)
        if address is None:
            return
        self._by_address[address] -= 1
        if not self._by_address[address]:
            del self._by_address[address]

    def __len__(self) -> int:
        return len(self._waiting)

    def _drop_one(self) -> None:
        most = max(self._by_address.values())
        crowded = {address for address, count in self._by_address.items() if count == most}
        oldest = next(connection for connection, address in self._waiting.items() if address in crowded)
        self.leave(oldest)
        oldest.abandon()
        self._on_dropped()

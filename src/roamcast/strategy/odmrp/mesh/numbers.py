"""Numbers for Join Requests and data packets that no crash makes a node use again.

As the broker core does for events: stable storage holds a bound that is always ahead, written once per
block; a crash skips the rest of its block.
"""

from collections.abc import MutableMapping

BLOCK = 1_000
KEY = "odmrp.number"


class Numbers:
    def __init__(self, stable: MutableMapping[str, bytes]) -> None:
        self._stable = stable
        self._next = int.from_bytes(stable.get(KEY, b""), "big")
        self._reserved = self._next

    def take(self) -> int:
        if self._next >= self._reserved:
            self._reserved = self._next + BLOCK
            self._stable[KEY] = self._reserved.to_bytes(8, "big")
        number = self._next
        self._next += 1
        return number

"""Numbers that a node never uses twice, not even after a crash.

Stable storage holds a bound that is always ahead of the numbers in use, written once per block. After a
crash a node goes on from the bound: the rest of the block is skipped, and no number comes twice.
"""

from collections.abc import MutableMapping


class StableCounter:
    """Counts up from 0, or from the bound that an earlier boot left under `key`."""

    def __init__(
        self, stable: MutableMapping[str, bytes], key: str, block: int, block_max: int | None = None
    ) -> None:
        """`block`: how many numbers one write reserves. With `block_max` the block doubles each time, up to
        that: otherwise a fast counter would wait for the disk too often."""
        self._stable = stable
        self._key = key
        self._block = block
        self._block_max = block if block_max is None else block_max
        self.next = int.from_bytes(stable.get(key, b""), "big")
        self._reserved = self.next

    def take(self) -> int:
        """The next number. Where the write fails (a full disk), no number is used up."""
        number = self.next
        if number >= self._reserved:
            reserved = number + self._block
            self._stable[self._key] = reserved.to_bytes(8, "big")
            self._reserved = reserved
            self._block = min(2 * self._block, self._block_max)
        self.next = number + 1
        return number

    def skip_to(self, number: int) -> None:
        """The next number is at least this one; the counter never goes back."""
        self.next = max(self.next, number)


def count_boot(stable: MutableMapping[str, bytes], key: str) -> int:
    """Which boot of this node it is, from 1 on; written down on return."""
    return StableCounter(stable, key, block=1).take() + 1

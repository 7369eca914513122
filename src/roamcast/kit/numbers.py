"""Numbers that a node never uses twice, not even after a crash.

Stable storage holds a bound that is always ahead of the numbers in use, written once per block. After a
crash a node goes on from the bound: the rest of the block is skipped, and no number comes twice. The next
block is reserved when half of one is left, so that a disk that is full for a while stops nobody.
"""

from collections.abc import MutableMapping

from roamcast.errors import RoamcastError


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
        self._reserved = self._write_at = self.next  # `_write_at`: then the next block is reserved
        if block > 1:
            self._reserve_early(self.next)

    def take(self) -> int:
        """The next number. Where none is left and the write fails (a full disk), no number is used up."""
        number = self.next
        if number >= self._reserved:
            self._reserve(number)
        elif number >= self._write_at:
            self._reserve_early(number)
        self.next = number + 1
        return number

    def _reserve(self, number: int) -> None:
        reserved = max(number, self._reserved) + self._block
        self._stable[self._key] = reserved.to_bytes(8, "big")
        self._reserved, self._write_at = reserved, reserved - self._block // 2
        self._block = min(2 * self._block, self._block_max)

    def _reserve_early(self, number: int) -> None:
        try:
            self._reserve(number)
        except (OSError, RoamcastError):  # once more when half of the rest is used up
            self._write_at = (number + self._reserved + 1) // 2

    def skip_to(self, number: int) -> None:
        """The next number is at least this one; the counter never goes back."""
        self.next = max(self.next, number)


def count_boot(stable: MutableMapping[str, bytes], key: str) -> int:
    """Which boot of this node it is, from 1 on; written down on return."""
    return StableCounter(stable, key, block=1).take() + 1

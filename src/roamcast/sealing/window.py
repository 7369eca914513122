"""Each counter at most once, in any order within `REACH`: a sliding window (RFC 4303, section 3.4.3).

`REACH` is wide because one counter numbers all frames of a sender, and a receiver sees only some of them:
frames for other receivers count too. The value is chosen by us.
"""

REACH = 4_096
_MASK = (1 << REACH) - 1


class ReplayWindow:
    """Accepts each counter above `floor` once. Below `highest - REACH` nothing is accepted any more."""

    __slots__ = ("_seen", "highest")

    def __init__(self, floor: int) -> None:
        self.highest = floor
        self._seen = _MASK  # bit n: `highest - n` was seen; at first all: the floor and below are over

    def is_new(self, counter: int) -> bool:
        behind = self.highest - counter
        return behind < 0 or (behind < REACH and not self._seen >> behind & 1)

    def mark(self, counter: int) -> None:
        """Note a counter that `is_new`."""
        behind = self.highest - counter
        if behind >= 0:
            self._seen |= 1 << behind
        else:
            ahead = -behind
            self._seen = ((self._seen << ahead) & _MASK | 1) if ahead < REACH else 1
            self.highest = counter

"""The duplicate set: which flooded messages have been received already (RFC 3626, sections 3.4 and 3.4.1).

The RFC notes in each tuple whether the message was relayed and over which interfaces it came. With one
interface both follow from the existence of the tuple: a second copy is neither processed nor relayed,
whoever sent it; with several, `olsr.py` keeps a second set, by message and interface. Tuples are never
renewed, so a forged sequence number blocks its place for the hold time and no longer. All have the same hold
time, so the oldest always expires first. A plain dictionary, not a `BoundedDict`: it is looked into for every
message that is heard.
"""

from roamcast.units import Micros

SWEEPS = 16  # in a hold time; chosen by us: so the set is at most a sixteenth larger than it has to be


class Duplicates:
    def __init__(self, hold: Micros, length_max: int) -> None:
        self._hold = hold  # DUP_HOLD_TIME
        self._length_max = length_max
        self._sweep_at: Micros = 0
        self.until: dict[int, Micros] = {}  # by `Message.key`

    def add(self, key: int, now: Micros) -> bool:
        """Remember a message. False if an older one had to be forgotten before its time."""
        until = self.until
        pushed_out = False
        if now >= self._sweep_at:
            # Not for each message: in a dictionary whose first places are empty, the first entry is far.
            self._sweep_at = now + self._hold // SWEEPS
            for expired in [key for key, end in until.items() if end <= now]:
                del until[expired]
        while len(until) >= self._length_max:
            oldest = next(iter(until))
            pushed_out = pushed_out or until[oldest] > now
            del until[oldest]
        until.pop(key, None)  # an expired one; the last entry shall be the youngest
        until[key] = now + self._hold
        return not pushed_out

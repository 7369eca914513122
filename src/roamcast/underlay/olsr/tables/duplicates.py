"""The duplicate set: which flooded messages have been received already (RFC 3626, sections 3.4 and 3.4.1).

The RFC notes in each tuple whether the message was relayed and over which interfaces it came. With one
interface both follow from the existence of the tuple: a second copy is neither processed nor relayed,
whoever sent it; with several, `olsr.py` keeps a second set, by message and interface. Tuples are never
renewed, so a forged sequence number blocks its place for the hold time and no longer. All have the same hold
time, so the oldest always expires first. A plain dictionary, not a `BoundedDict`: it is looked into for every
message that is heard.
"""

from roamcast.units import Micros


class Duplicates:
    def __init__(self, hold: Micros, length_max: int) -> None:
        self._hold = hold  # DUP_HOLD_TIME
        self._length_max = length_max
        self.until: dict[int, Micros] = {}  # by `Message.key`

    def add(self, key: int, now: Micros) -> bool:
        """Remember a message. False if an older one had to be forgotten before its time."""
        until = self.until
        pushed_out = False
        while until:
            oldest = next(iter(until))
            if until[oldest] > now:
                if len(until) < self._length_max:
                    break
                pushed_out = True
            del until[oldest]
        until[key] = now + self._hold
        return not pushed_out

"""What one broker says of its neighbours (BTT), and its line of the BIT, the Broker Information Table."""

from typing import Annotated

import msgspec

from roamcast.event import Count
from roamcast.units import NodeId

NEIGHBOURS_MAX = 255
SEQUENCE_MAX = (1 << 63) - 1
WITHDRAWN = 255  # `ring` of a row without links: its broker is one no more

Links = Annotated[tuple[Count, ...], msgspec.Meta(max_length=2 * NEIGHBOURS_MAX)]


class Row(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """One broker's neighbours and their distances in hops, one after the other.

    `ring` is how far it looked; `WITHDRAWN`: it is a broker no more. `load`, in hundredths of its capacity,
    and `producers` are its line of the BIT."""

    broker: Count
    sequence: Count
    links: Links
    ring: Count = 0
    load: Count = 0
    producers: Count = 0  # how many of its clients publish
    age: Count = 0  # seconds since the broker said so, when it is sent: whose word is later?

    @property
    def is_withdrawn(self) -> bool:
        return self.ring == WITHDRAWN

    def neighbours(self) -> list[tuple[NodeId, int]]:
        """A distance of 0 is none: only the row's own broker is so near."""
        return [pair for pair in _pairs(self.links) if pair[1] > 0]

    def change_from(self, earlier: "Row") -> "RowChange | None":
        """None if the whole row is as short."""
        before, now = dict(_pairs(earlier.links)), dict(_pairs(self.links))
        links = [n for pair in now.items() if before.get(pair[0]) != pair[1] for n in pair]
        links += [n for broker in before if broker not in now for n in (broker, 0)]
        if len(links) >= len(self.links) or _flat(now) != self.links:
            return None
        base = earlier.sequence
        return RowChange(
            self.broker, base, self.sequence - base, tuple(links), self.ring, self.load, self.producers
        )


class RowChange(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A row told to someone who has an earlier one: the links that are new or have another distance, and with
    distance 0 those that are gone."""

    broker: Count
    base: Count  # the sequence number of the earlier row
    steps: Count  # to that of this one
    links: Links
    ring: Count
    load: Count
    producers: Count
    age: Count = 0

    @property
    def sequence(self) -> int:
        return self.base + self.steps

    def row(self, earlier: Row) -> Row | None:
        """The row that `earlier` has become; None if that can be none."""
        links = dict(_pairs(earlier.links))
        for broker, distance in _pairs(self.links):
            if distance:
                links[broker] = distance
            else:
                links.pop(broker, None)
        if len(links) > NEIGHBOURS_MAX or self.sequence > SEQUENCE_MAX:
            return None
        return Row(self.broker, self.sequence, _flat(links), self.ring, self.load, self.producers)


def _pairs(links: tuple[int, ...]) -> list[tuple[NodeId, int]]:
    return list(zip(links[::2], links[1::2], strict=False))


def _flat(links: dict[NodeId, int]) -> tuple[int, ...]:
    """In the order of the brokers' numbers, as their owner says it."""
    return tuple(number for pair in sorted(links.items()) for number in pair)

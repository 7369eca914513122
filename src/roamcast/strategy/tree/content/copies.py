"""An event at one node: what travels with it."""

from typing import NamedTuple

from roamcast.event import Event
from roamcast.units import Micros


class Copy(NamedTuple):
    event: Event
    hops: int  # links so far
    published_at: Micros  # on this node's clock, as far as the age tells
    again: bool  # sent for recovery: only for wishes that are older than the event

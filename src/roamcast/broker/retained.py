"""Retained events: memorized ones of which only the newest of each topic counts.

MQTT's retained messages travel so (`gateway/mqtt/mesh/retained.py` says how they are stamped), and every
node that stores events must be able to tell them, with or without MQTT clients: a topic that is retained
anew each second would else fill every store of the mesh with what nobody will ever be shown. "Newest" is
the same on every node: by stamp, then by node and sequence number.
"""

from typing import NamedTuple

from roamcast.event import Event, EventClass
from roamcast.units import Micros, NodeId

FLAGS = "mqtt"  # attribute: the QoS, plus `RETAINED`
AT = "mqtt.at"  # attribute: the stamp
RETAINED = 4
STAMP_MAX: Micros = 2**62  # no clock says more; so there is always a higher stamp


class Order(NamedTuple):
    """Of retained events of one topic: the highest is the newest."""

    stamp: Micros
    publisher: NodeId
    sequence: int


def is_retained(event: Event) -> bool:
    flags = event.attributes.get(FLAGS)
    return type(flags) is int and RETAINED <= flags <= RETAINED + 2


def supersedes(event: Event) -> bool:
    """Whether a store that keeps this event needs none of its topic that is older."""
    if event.event_class is not EventClass.MEMORIZED or not event.topic or event.destinations:
        return False
    return is_retained(event)


def stamp_of(event: Event) -> Micros:
    """0, the oldest, for what is no stamp: the event may come from anywhere."""
    stamp = event.attributes.get(AT)
    return stamp if type(stamp) is int and 0 <= stamp < STAMP_MAX else 0


def order_of(event: Event) -> Order:
    return Order(stamp_of(event), event.publisher, event.sequence)

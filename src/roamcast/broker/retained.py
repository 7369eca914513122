"""Retained events: memorized ones of which only the newest of each topic counts.

MQTT's retained messages are sent as such events (`gateway/mqtt/mesh/exchange.py` says how they are stamped).
Every node that stores events must recognise them, with or without MQTT clients: otherwise a topic that is
retained anew each second would fill every store with events that nobody will ever get. "Newest" is
the same on every node: by stamp, then by node and sequence number.
"""

from typing import NamedTuple

from roamcast.chunks import is_chunk, is_last
from roamcast.event import Event, EventClass, Publication
from roamcast.units import Micros, NodeId
from roamcast.wire import exchange

FLAGS = exchange.FLAGS  # attribute: the QoS, plus `RETAINED`
AT = "mqtt.at"  # attribute: the stamp
RETAINED = 4
STAMP_MAX: Micros = 2**62  # above any clock, so a higher stamp always exists


class Order(NamedTuple):
    """The order of the retained events of one topic: the highest is the newest."""

    stamp: Micros
    publisher: NodeId
    sequence: int


def is_retained(event: Event | Publication) -> bool:
    flags = event.attributes.get(FLAGS)
    return type(flags) is int and RETAINED <= flags <= RETAINED + 2


def supersedes(event: Event) -> bool:
    """Whether a store that keeps this event needs none of its topic that is older. Of a payload in chunks the
    last one stands for all: it is sent last, so until then the one before is there."""
    if not is_retained(event) or event.event_class is not EventClass.MEMORIZED:
        return False
    return bool(event.topic) and not event.destinations and (not is_chunk(event) or is_last(event))


def clears(event: Event) -> bool:
    """Whether it only says that its topic has no retained message any more."""
    return not event.payload and supersedes(event)


def stamp_of(event: Event) -> Micros:
    """0, the oldest, for an invalid stamp: the event may come from anywhere."""
    stamp = event.attributes.get(AT)
    return stamp if type(stamp) is int and 0 <= stamp < STAMP_MAX else 0


def order_of(event: Event) -> Order:
    return Order(stamp_of(event), event.publisher, event.sequence)

"""Which way events would go at this instant: what figures 7, 8 and 10 to 12 compare (section 4.1)."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from roamcast.strategy.opportunistic.options import OpportunisticOptions
from roamcast.units import NodeId

if TYPE_CHECKING:
    from roamcast.strategy.opportunistic.broker import Brokerage


def event_paths(broker: "Brokerage", options: OpportunisticOptions) -> Iterator[tuple[NodeId, ...]]:
    """`brokers`: from this broker to every other, on its own view of the overlay. `clients`: from each of its
    producers, through this broker and the consumer's home broker as known here, to every consumer."""
    overlay, consumers = broker.overlay, broker.consumers
    if options.paths == "brokers":
        yield from overlay.paths()
        return
    for producer in broker.homes.clients.values():
        if not producer.produces:
            continue
        for consumer in consumers.consumers():
            known = consumers.find(consumer)
            if consumer != producer.node and known is not None and known.interests:
                yield (producer.node, *overlay.path(known.home), consumer)

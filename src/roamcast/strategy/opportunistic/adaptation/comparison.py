"""Which of two brokers is on the shorter way from the producers to a client: by hops on this broker's view of
the overlay, or in time, by pings."""

from collections.abc import Callable, Mapping, Sequence

from roamcast.strategy.opportunistic.adaptation.events import BrokerDiscovered
from roamcast.strategy.opportunistic.adaptation.services import Latencies
from roamcast.units import Micros, NodeId

GAIN = 0.1  # of the time: two measurements of one way differ too, and a client must not go to and fro


def is_fewer_hops(
    found: BrokerDiscovered,
    own: NodeId,
    sources: Sequence[NodeId],
    path: Callable[[NodeId, NodeId], float | None],
) -> bool:
    """By the sum over all producers, so that equal paths are equal to the last digit. A producer that has
    no path to one of the two speaks for neither; before any is known only the last part counts."""
    gain, last, compared = 0.0, found.home_distance - found.distance, 0
    for source in sources:
        here, there = path(source, own), path(source, found.candidate)
        if here is not None and there is not None:
            gain += here + last - there
            compared += 1
    return gain > 0 if compared else last > 0


def compare_in_time(
    latencies: Latencies,
    found: BrokerDiscovered,
    own: NodeId,
    sources: Sequence[NodeId],
    on_compared: Callable[[bool | None], None],
) -> None:
    """`on_compared` gets None where the client answered one of the two brokers only: nobody can tell."""
    client, other = found.client, found.candidate
    peers = sorted({client, *sources})

    def compare(here: Mapping[NodeId, Micros], there: Mapping[NodeId, Micros]) -> None:
        if client not in here or client not in there:
            on_compared(None)
            return
        known = [source for source in sources if source in here and source in there]
        old = sum(here[source] for source in known) + max(len(known), 1) * here[client]
        new = sum(there[source] for source in known) + max(len(known), 1) * there[client]
        on_compared(new < (1 - GAIN) * old)

    latencies.ask(own, peers, lambda here: latencies.ask(other, peers, lambda there: compare(here, there)))

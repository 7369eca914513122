"""Which nodes the frames of each event reached, and where nobody wanted it: noise.

Derived after the run from transmissions and ground truth, in the same way for every strategy. A broadcast
is heard by every neighbour of its sender, so relays and nodes that only overhear both count as noise: both
received and decoded something that no application on their node asked for. Relays are also counted apart.
"""

from collections.abc import Iterable

from roamcast.lab.run.derived import Expected, Reached
from roamcast.trace import NodeSet, Transmitted
from roamcast.units import NodeId


def reached(transmissions: Iterable[Transmitted], expected: Iterable[Expected]) -> list[Reached]:
    """One row per event that was received by somebody, by publisher and sequence."""
    heard: dict[tuple[NodeId, int], NodeSet] = {}
    sent: dict[tuple[NodeId, int], NodeSet] = {}
    for frame in transmissions:
        if frame.publisher is not None and frame.sequence is not None:
            event = (frame.publisher, frame.sequence)
            heard[event] = heard.get(event, 0) | frame.received
            sent[event] = sent.get(event, 0) | 1 << frame.node
    wanted: dict[tuple[NodeId, int], NodeSet] = {}
    for pair in expected:
        event = (pair.publisher, pair.sequence)
        wanted[event] = wanted.get(event, 0) | 1 << pair.node
    rows = []
    for (publisher, sequence), nodes in sorted(heard.items()):
        others = nodes & ~(1 << publisher)
        unwanted = others & ~wanted.get((publisher, sequence), 0)
        if others:
            relays = unwanted & sent[publisher, sequence]
            counts = (others.bit_count(), unwanted.bit_count(), relays.bit_count())
            rows.append(Reached(publisher, sequence, *counts))
    return rows

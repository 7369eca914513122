"""Directed: epidemic's parts, steered by who wants what. `docs/protocols/directed.md` has the rule and an
example; to read in this order:

- `interests.py`: what every node wants, known to every node, and which nodes want an event.
- `distances.py`: how far subscribers are, by vectors that ride in beacons.
- `messages.py`: copies that name relays and whom each of them serves; what rides in a beacon.
- `strategy.py`: which way an event goes, and what is done when it gets lost.
"""

from roamcast.strategy.directed.strategy import Directed, DirectedOptions

__all__ = ["Directed", "DirectedOptions"]

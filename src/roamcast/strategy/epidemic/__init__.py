"""Epidemic: flood what is new, and keep comparing notes. Our own default for small fleets in the field.

Not one of the five papers. Flooding reaches everyone who is connected just now; anti-entropy (Demers and
others, 1987; over radio, Vahdat and Becker's epidemic routing, 2000) carries memorized events across
partitions and mends what the radio lost. Subscriptions do not travel. To read in this order:

- `messages.py`: a copy of an event, a digest of what a node holds, a request.
- `holdings.py`: what this node could give, and how that is written in few octets.
- `relay.py`: when a copy need not be passed on, because all neighbours have it.
- `exchange.py`: asking a neighbour for what it has and we have not.
- `strategy.py`: the layer.
"""

from roamcast.strategy.epidemic.options import EpidemicOptions
from roamcast.strategy.epidemic.strategy import Epidemic

__all__ = ["Epidemic", "EpidemicOptions"]

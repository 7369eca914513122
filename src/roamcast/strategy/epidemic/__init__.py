"""Epidemic: flood what is new, and keep comparing digests. Our own default for small fleets in the field.

Not one of the five papers. Flooding reaches every node that is connected at that moment; anti-entropy (Demers
and others, 1987; over radio, Vahdat and Becker's epidemic routing, 2000) carries memorized events across
partitions and repairs losses of the radio. Subscriptions are not sent. To read in this order:

- `messages.py`: a copy of an event, a digest of what a node holds, a request.
- `holdings.py`: the events this node can give to others, and their short encoding.
- `relay.py`: when a copy need not be passed on, because all neighbours have it.
- `exchange.py`: requests for what a neighbour has and we lack.
- `strategy.py`: the layer.
"""

from roamcast.strategy.epidemic.options import EpidemicOptions
from roamcast.strategy.epidemic.strategy import Epidemic

__all__ = ["Epidemic", "EpidemicOptions"]

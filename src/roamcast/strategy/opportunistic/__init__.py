"""Opportunistic overlays and channels (Chen, Schwan and Zhou): brokers, home brokers and modulators that
follow the network. `docs/protocols/opportunistic.md` says what is where; to read in this order:

- `messages.py`, `transport.py`, `reliable.py`, `post.py`: what nodes say to each other, in order and surely.
- `discovery.py`, `rows.py`, `topology.py`, `propagation.py`, `brokers.py`: the broker overlay (section 2.3).
- `client.py`, `clients.py`, `consumers.py`, `registrations.py`: who is at home where, and wants what.
- `dispatch.py`, `places.py`, `backlog.py`, `strays.py`: from producer to consumer (2.1).
- `handoff.py`, `handoff_source.py`, `handoff_destination.py`, `ways.py`: how a home broker changes (2.4);
  `adaptation/home_broker.py`: which it shall be.
- `managers.py`, `directory.py`, `wiring.py`: what the adaptors of `adaptation/` ask and do (3.3 to 3.5).
- `brokerage.py`, `strategy.py`: all of it put together.
"""

from roamcast.strategy.opportunistic.options import OpportunisticOptions
from roamcast.strategy.opportunistic.strategy import Opportunistic

__all__ = ["Opportunistic", "OpportunisticOptions"]

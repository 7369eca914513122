"""Opportunistic overlays and channels (Chen, Schwan and Zhou): brokers, home brokers and modulators that
follow the network. `docs/protocols/opportunistic.md` says what is where; to read in this order:

- `wire/`: what nodes say to each other, and streams between two of them.
- `overlay/`: what all nodes know (rows), and the broker overlay on it (section 2.3).
- `homes/`: who is at home where, and wants what.
- `events/`: from producer to consumer (2.1): floods and letters, readers and what they lack, modulators.
- `handoff/`: how a home broker changes (2.4).
- `adaptation/`: what adaptors see and decide (3.3 to 3.5).
- `brokerage.py`, `strategy.py`: all of it put together.
"""

from roamcast.strategy.opportunistic.options import OpportunisticOptions
from roamcast.strategy.opportunistic.strategy import Opportunistic

__all__ = ["Opportunistic", "OpportunisticOptions"]

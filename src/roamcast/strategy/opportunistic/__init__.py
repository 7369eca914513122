"""Opportunistic overlays and channels (Chen, Schwan and Zhou): brokers, home brokers and modulators that
follow the network. `docs/protocols/papers.md` says what of the works is where; to read in this order:

- `messages.py`: what nodes say to each other. `stream.py`: messages between two nodes, in order and once.
  `envelope.py`: how they get there, several in one frame.
- `board.py`: what all nodes know (rows). `overlay.py`: the broker overlay on it (section 2.3).
- `client.py`: a node as a client. `consumers.py`: who is at home where, and wants what. `homes.py`: the
  clients of one broker, with their `modulators.py` at work.
- `dispatch.py`: from producer to consumer (2.1), by streams or by `floods.py`. `copies.py`: the events that
  a node has. `readers.py`: what a consumer has had, and asking for what it lacks.
- `handoff/`: how a home broker changes (2.4).
- `adaptation/`: what adaptors see and decide (3.3 to 3.5).
- `broker.py`, `strategy.py`: all of it put together, over what they have in common (`shared.py`).
"""

from roamcast.strategy.opportunistic.options import DISCARDS, OpportunisticOptions
from roamcast.strategy.opportunistic.strategy import Opportunistic

__all__ = ["DISCARDS", "Opportunistic", "OpportunisticOptions"]

"""Chapar: multipoint relays as brokers, node vectors, two small tables (Khakpour and Demeure, 2008).

To read in this order:

- `options.py`: the parameters. `messages.py`: what is sent. `roles.py`: who is a broker.
- `tables/`: what brokers keep (FMT, MET), bounded, with digests; sets of nodes as bitmaps, hashes of filters.
- `interests.py`, `sealing.py`: what a node itself wants, with versions; encrypted events.
- `state.py`: what the parts share. Then the parts: `notification/` (a node and its broker; the
  transport of events), `consistency/` (brokers that agree on their tables and memorized events).
- `strategy.py`: the role's state machine, the timers, who handles what.

`docs/protocols/chapar.md` goes through the paper section by section, with departures and what was added. Left
out: the technical report's details that the paper only cites; the choice of ciphers for encrypted events.
"""

from roamcast.strategy.chapar.options import ChaparOptions
from roamcast.strategy.chapar.strategy import Chapar

__all__ = ["Chapar", "ChaparOptions"]

"""Chapar: multipoint relays as brokers, node vectors, two small tables (Khakpour and Demeure, 2008).

To read in this order:

- `node_vector.py`, `identifiers.py`: sets of nodes as bitmaps; filters and events as hashes.
- `filter_table.py` (FMT), `event_table.py` (MET): what brokers keep, bounded, with digests.
- `multicast.py`: the paper's equations, as functions of vectors. `roles.py`: who is a broker.
- `messages.py`: what is sent. `options.py`: the parameters.
- `interests.py`, `inbox.py`, `sealing.py`: a node's own side; versions, once and in order, encrypted events.
- `state.py`: what the parts share. Then the parts: `attachment.py` (a node and its broker), `courier.py`
  (real-time events), `memory.py` (memorized events), `consistency.py` (tables of brokers), `meetings.py`
  (brokers that come into each other's neighbourhood).
- `strategy.py`: the role's state machine, the timers, who handles what.

`docs/chapar.md` goes through the paper section by section, with departures and what was added. Left out:
the technical report's details that the paper only cites; the choice of ciphers for encrypted events.
"""

from roamcast.strategy.chapar.options import ChaparOptions
from roamcast.strategy.chapar.strategy import Chapar

__all__ = ["Chapar", "ChaparOptions"]

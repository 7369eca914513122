"""Chapar: multipoint relays as brokers, node vectors, two small tables (Khakpour and Demeure, 2009).

To read in this order, with the paper's words for what is inside:

- `options.py`: the parameters. `messages.py`: what is sent. `sending.py`: how.
- `node_vectors.py`: sets of nodes as bitmaps (NV), equations (2) to (7). `brokers.py`: who is a broker
  (*Special cases*); HNV, ANV, NNV.
- `identifiers.py`: FID and EID, formula (1). `filter_mapping_table.py`: FMT, Algorithm 1.
  `memorized_event_table.py`: MET, USNV. `tables.py`: both together, and what this node itself wants.
- `subscription.py`: *Subscription/Un-subscription*. `attachment.py`: a node and its broker (*Publishing and
  Notification* in one hop, *Instant Notification*; absent subscribers: equations 4 to 6).
- `event_multicasting.py`: real-time events (*Lookup Process*, *Event Notification*, *Event Multicasting*);
  `recapitulation.py` makes up for lost broadcasts.
- `memorized_events.py`: their flooding; `inbox.py`: each once and in order; encrypted events.
- `consistency_check.py`: *Table Consistency Check*. `inheritance.py`: *Inheritance and Dismissal*,
*Check-out*.
- `part.py`: what the parts share. `strategy.py`: the parts put together.

`docs/protocols/papers.md` goes through the paper, `chapar.md` beside it has departures and additions. Left
out: the technical report's details that the paper only cites; the choice of ciphers for encrypted events.
"""

from roamcast.strategy.chapar.options import ChaparOptions
from roamcast.strategy.chapar.strategy import Chapar

__all__ = ["Chapar", "ChaparOptions"]

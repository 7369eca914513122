"""The strategy `tree`: an acyclic overlay among dispatchers that move, and content-based routing on it.

After the acyclic-overlay work (`docs/papers.md`).
`docs/tree.md` says what is where and which rules were added. Read in this order:

- `label.py`: the order that forbids cycles; `messages.py`: RREQ, RREP, MACT, GRPH and the rest;
- `parameters.py`: section 5.4, presets, adaptation;
- `links.py`, `routes.py`, `courier.py`: the tables and the sending;
- `evolved.py`: the evolved protocol (chapter 4, A.2); `original.py`: MAODV as it was (A.1, 3.2.3);
- `overlay.py`: the layer that drives either; `manager.py`: the overlay manager for others (chapter 5);
- `content/`, `strategy.py`: publish/subscribe on top.
"""

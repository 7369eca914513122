"""The strategy `tree`: an acyclic overlay among dispatchers that move, and content-based routing on it.

After the acyclic-overlay work; `docs/protocols/papers.md` says what of it is where.
`docs/protocols/tree.md` has the rules that were added. Read in this order:

- `parameters.py`: the options, section 5.4;
- `overlay/`: the protocol, evolved and original, and the overlay manager for others;
- `content/`, `strategy.py`: publish/subscribe on top.
"""

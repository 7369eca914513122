"""The acyclic overlay. In this order: `label.py` (the order that forbids cycles), `messages.py` (RREQ,
RREP, MACT, GRPH and the rest), `parameters.py` (section 5.4, presets, adaptation), `links.py`, `routes.py`,
`search.py`, `courier.py` (tables and sending), `protocol.py` (what both protocols share), `evolved.py`
(chapter 4, A.2), `original_messages.py` and `original.py` (MAODV as it was: A.1, 3.2.3), `layer.py` (drives
either), `manager.py` (for others, chapter 5).
"""

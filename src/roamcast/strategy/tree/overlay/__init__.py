"""The acyclic overlay. In this order: `messages.py` (RREQ, RREP, MACT, GRPH and the rest; labels, the order
that forbids cycles), `multicast_table.py` (the tables of A.1: links, routes), `courier.py` (repeats),
`requests.py`, `leader.py`, `evolved.py` (the evolved protocol: chapter 4, A.2), `original.py` (MAODV as it
was: 3.2.3, A.1), `layer.py` (drives either, and carries data), `manager.py` (for others, chapter 5).

| in appendix A | evolved | original |
|---|---|---|
| procedures 1 and 6, `GenerateRREQ` | `Search.generate_rreq` | `Original._generate_rreq` |
| 2, `activateReplies` | `Evolved.activate_replies` | `Original._activate_replies` |
| 3, 7 and 9, `receiveRREQ`, `forwardRREQ` | `Search.receive_rreq` | `Original._receive_rreq` |
| 4 and 8, `receiveRREP` | `Search.receive_rrep` | `Original._receive_rrep` |
| 5, `receiveMACT` | `Evolved.receive_mact` | `Original._receive_mact` |
"""

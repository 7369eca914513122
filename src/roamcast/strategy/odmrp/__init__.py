"""Pub/Sub ODMRP: content-based subscriptions carried by an on-demand multicast mesh.

Follows E. Yoneki and J. Bacon, *Dynamic Group Communication in Mobile Peer-to-Peer Environments* (SAC
2005), over ODMRP as its Internet draft describes it. docs/protocols/odmrp.md lists
the departures; docs/protocols/odmrp-summaries.md is about the summaries. In the order to read:

- `options`: the parameters;
- `summary/`, `grouping/`: compact forms of subscriptions and events, and groups of them (3.3, 3.4);
- `repair`: what was lost, and memorized events;
- `context`: what the middleware attaches to packets, and what it does with what it finds there;
- `messages`, `routes`, `join_tables`, `publisher`: the mesh as a node sees it, the publisher's broker (3.5,
3.6);
- `clients`: devices without a broker (3.5, 4);
- `strategy`: who handles which message.

Left out: the choice of routes by predicted lifetime (only the intervals follow it), unicast over ODMRP,
and the draft's request to neighbours when a next hop is gone (other upstream nodes are tried instead).
"""

from roamcast.strategy.odmrp.options import OdmrpOptions
from roamcast.strategy.odmrp.strategy import Odmrp

__all__ = ["Odmrp", "OdmrpOptions"]

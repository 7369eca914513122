"""Roamcast: publish/subscribe for networks that move.

Read in this order: `event` and `filter` (what is published, who wants it), `host` (all that a
protocol may touch), `strategy` (how events are routed), `node` (one node's layers), `world` (motion,
contact plans), `runtime` (the worlds a node runs in), `lab` (runs, metrics, reports), `cli`.
`docs/develop/architecture.md` has the pictures.
"""

__version__ = "0.2.0"

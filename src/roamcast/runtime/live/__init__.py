"""The live runtime: one node in this process, on real interfaces, in real time.

To read in this order:

- `settings.py`: what can be configured. and the keys, names and interfaces that follow from it.
- `node.py`: `LiveNode`, which puts all parts together.
- `layers.py`: `LiveLayers`, the same radio for layers without a node, e.g. an overlay manager.
- `inputs.py`: one input at a time, the node's clock and timers.
- `air/`: one hop, by sealed datagrams and TCP links; `docs/use/live.md` describes it.
- `routes.py`, `open_air.py`: the host's own routing table, and foreign routers.
- `storage/`: what survives a crash.
- `report/`: a node's counters and traces.

Left out: sources of positions. Linux only.
"""

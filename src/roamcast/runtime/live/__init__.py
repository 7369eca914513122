"""The live runtime: one node in this process, on real interfaces, in real time.

To read in this order:

- `settings.py`: what can be configured. `parts.py`: makes the parts of a node from it.
- `node.py`: `LiveNode`, which puts all parts together.
- `port/`: the port (`roamcast.host.Host`) and its promises.
- `air/`: one hop, by sealed datagrams and TCP links; `docs/use/live.md` describes it.
- `routes/`: the host's own routing table, and foreign routers.
- `storage/`: what survives a crash.
- `report/`: a node's counters and traces.

Left out: sources of positions. Linux only.
"""

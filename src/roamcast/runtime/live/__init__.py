"""The live runtime: one node in this process, on a real interface, in real time.

To read in this order:

- `settings.py`: what can be configured. `parts.py`: makes the parts of a node from it.
- `node.py`: `LiveNode`, which puts all parts together.
- `port/`: the port (`roamcast.host.Host`) and its promises.
- `air/`: one hop, by sealed datagrams and TCP links; `docs/use/live.md` describes it.
- `storage/`: what survives a crash.
- `report/`: a node's counters and traces.

Left out: IPv6 (a node needs an IPv4 address on its interface, link-local will do), several interfaces per
node, sources of positions. Linux only.
"""

"""The live runtime: one node in this process, on a real interface, in real time.

To read in this order:

- `settings.py`: what can be configured. `node.py`: `LiveNode`, the whole put together.
- `clock.py`, `inputs.py`, `timers.py`, `host.py`: the port (`roamcast.host.Host`) and its promises.
- `radio.py` over `air.py` (sockets), `datagrams.py` (joined, sealed, acknowledged), `link.py` and `links.py`
  (TCP), `peers.py` (who was heard where), `frames.py` (the octets). `docs/live.md` has it in prose.
- `storage.py`, `durable_store.py`, `client_records.py`: what survives a crash.
- `counters.py`, `journal.py`, `trace_file.py`: what a node says about itself.

Left out: IPv6 (a node needs an IPv4 address on its interface, link-local will do), several interfaces per
node, sources of positions. Linux only.
"""

"""A bridge to an MQTT broker elsewhere, carried by whichever node has the uplink. To read in this order:

- `gateway/options.py`: the table `[bridge]` of a node's file.
- `handover.py`: what the nodes of a bridge tell each other through the mesh; the QoS 2 exchanges of the
  bridge's session on the broker, without I/O.
- `bridge.py`: who carries, and what; one connection to the broker.

All nodes with the same bridge share one lasting session on the broker, under one client identifier. The
broker lets one of them be connected at a time, so one node carries, and its QoS 2 exchanges are the
session's. When the uplink of that node ends it tells the others how far each exchange was, and the next
node goes on there.

Left out: what a carrying node had under way when it was killed is not known to the others; at most as many
messages as may be under way (`inflight_max`) then come twice.
"""

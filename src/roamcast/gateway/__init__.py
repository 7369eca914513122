"""How programs that are not part of a node use it.

`mqtt/` lets any MQTT client use the mesh; `local/` is the socket of the Python client and of the commands.
A gateway speaks a protocol with its clients on one side and has an `ApplicationSession`
(`roamcast.applications`) on the other; `node.py` says what it needs of the node. It does not decide where an
event travels.
"""

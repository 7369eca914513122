"""Sessions on a node for programs that are not part of it.

`mqtt/` lets any MQTT client use the mesh; `local/` is the socket of the Python client and of the commands.
A gateway speaks a foreign protocol on one side and has an `ApplicationSession` (`roamcast.applications`) on
the other. It decides nothing about where an event travels.
"""

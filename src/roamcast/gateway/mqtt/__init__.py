"""MQTT 3.1, 3.1.1 and 5: any MQTT client on the device uses the mesh unchanged.

To read in this order:

- `gateway/options.py`: the `[mqtt]` table, with every bound.
- `mesh/`: messages as events, clients' filters as the mesh's filters; the exchange with the node.
- `sessions/`: what outlives a connection, and what outlives the node.
- `listener.py`, `connection.py`, `transport.py`: sockets; what each packet means; octets and turns.
- `packets/`: encoding and decoding.

WebSockets are in `gateway/web`, as another transport of the same connections.
Left out: enhanced authentication (AUTH), `$SYS`.
`docs/use/mqtt.md` is for users.
"""

"""MQTT 3.1.1 and 5: any MQTT client on the device uses the mesh unchanged.

To read in this order:

- `options.py`: the `[mqtt]` table, with every bound.
- `mapping.py`, `number.py`, `content.py`, `retained.py`: how messages are events and filters are filters.
- `exchange.py`, `interests.py`: between clients and the node's door.
- `session.py`, `sessions.py`, `durable.py`: what outlives a connection, and what outlives the node.
- `listener.py`, `connection.py` (`answers.py`, `outlet.py`), `transport.py`: sockets; what each packet means;
  octets and turns.
- `codec.py`, `properties.py`, `packets.py`, `decode.py`, `encode.py`, `reasons.py`, `message.py`: the form.

Left out: enhanced authentication (AUTH), MQTT 3.1 (`MQIsdp`), WebSockets, `$SYS`.
`docs/mqtt.md` is for users.
"""

from roamcast.gateway.mqtt.listener import MqttListener
from roamcast.gateway.mqtt.options import MqttOptions

__all__ = ["MqttListener", "MqttOptions"]

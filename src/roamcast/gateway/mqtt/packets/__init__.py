"""The packets of MQTT 3.1.1 and 5: `values.py` (types and reason codes), `codec.py` (octets to packets and
back)."""

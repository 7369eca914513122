"""The environments that a node runs in. Each implements `Host`; only this code sees clocks or sockets.

`sim` runs in virtual time over a contact plan and a radio model, `emulate` runs real processes over an
emulated radio, `live` runs one node on a real interface.
"""

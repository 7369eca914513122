"""The worlds that a node runs in: each implements `Host`, and only this code sees clocks or sockets.

`sim` is virtual time over a contact plan and a radio model.
"""

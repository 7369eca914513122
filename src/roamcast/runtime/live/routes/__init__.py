"""The host's own routing, IPv4 only: `kernel_routes.py` reads its table, `route_writer.py` writes to it, and
`open_air.py` speaks plain OLSR with foreign daemons.
"""

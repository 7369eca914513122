"""The adaptation layer (overlays, section 3; channels, section 2.2). To read in this order:

- `events.py`: what happens inside a broker, and how its parts hear of it.
- `services.py`: what an adaptor may ask and do. `adaptors.py`: what an adaptor is, and those that come along.
- `monitor.py`: readings of resources, here and from other nodes; pings.
- `directory.py`: broker information, from this broker's own tables or from one server for all.
- `layer.py`: all of it put together, and the services over a broker's real tables.

`docs/protocols/adaptors.md` shows how to write one.
"""

from roamcast.strategy.opportunistic.adaptation.adaptors import ADAPTORS, Adaptor, start

__all__ = ["ADAPTORS", "Adaptor", "start"]

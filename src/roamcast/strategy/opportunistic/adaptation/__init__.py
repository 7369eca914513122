"""The adaptation layer (overlays, section 3; channels, section 2.2). To read in this order:

- `events.py`, `channel.py`: what happens inside a broker, and how its parts hear of it.
- `services.py`: what an adaptor may ask and do. `adaptor.py`: what an adaptor is, and their names.
- `monitor.py`, `resources.py`, `messages.py`: readings of resources, here and from other nodes.
- `latency.py`, `comparison.py`: pings, and which of two brokers is on the shorter way.
- `home_broker.py`, `topology.py`, `load_balancing.py`, `brokers.py`, `placement.py`: the adaptors that come
  along.

`docs/protocols/adaptors.md` shows how to write one.
"""

from roamcast.strategy.opportunistic.adaptation.adaptor import ADAPTORS, Adaptor, start
from roamcast.strategy.opportunistic.adaptation.brokers import BrokerCreation, BrokerRemoval
from roamcast.strategy.opportunistic.adaptation.home_broker import ComplexHomeBroker, SimpleHomeBroker
from roamcast.strategy.opportunistic.adaptation.load_balancing import LoadBalancing
from roamcast.strategy.opportunistic.adaptation.placement import EndBrokers, Placement
from roamcast.strategy.opportunistic.adaptation.topology import BrokerTopology

ADAPTORS.update(
    {
        "simple": SimpleHomeBroker,
        "complex": ComplexHomeBroker,
        "topology": BrokerTopology,
        "load_balancing": LoadBalancing,
        "broker_creation": BrokerCreation,
        "broker_removal": BrokerRemoval,
        "placement": Placement,
        "ends": EndBrokers,
    }
)

__all__ = ["ADAPTORS", "Adaptor", "start"]

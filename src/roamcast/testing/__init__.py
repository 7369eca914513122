"""For authors of protocols: a host driven by hand (`host.py`), small networks of whole nodes
(`network.py`), and the suites that every strategy and every host must pass (`contract.py`, which alone needs
pytest)."""

from roamcast.testing.host import FakeHost, Sent
from roamcast.testing.network import Arrival, Network, line, mesh

__all__ = ["Arrival", "FakeHost", "Network", "Sent", "line", "mesh"]

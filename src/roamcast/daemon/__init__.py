"""`roamcast node`: a node with its services, run from one file until it is told to stop.

- `config.py`: the file, checked; every problem names its key. `fresh.py`: a new file with fresh keys.
  `network.py`: what all nodes of a network have alike.
- `run.py`: node, gateways, metrics, signals. `metrics.py`: the Prometheus endpoint. `logs.py`: log lines.
"""

from roamcast.daemon.config import Config, load_config
from roamcast.daemon.fresh import Network, init, network_of, write_fresh
from roamcast.daemon.run import Daemon, run

__all__ = ["Config", "Daemon", "Network", "init", "load_config", "network_of", "run", "write_fresh"]

"""`roamcast node`: a node with its services, run from one file until it is told to stop.

- `config.py`: the file, checked; every problem names its key. `fresh.py`: a new file with fresh keys,
  and what all nodes of a network have alike. `keys.py`: keys changed, devices invited.
- `run.py`: node, gateways, metrics, log, signals. `collector.py`: the garbage collector.
"""

from roamcast.daemon.config import Config, load_config
from roamcast.daemon.fresh import NetworkSettings, init, network_of, write_fresh
from roamcast.daemon.run import Daemon, run

__all__ = ["Config", "Daemon", "NetworkSettings", "init", "load_config", "network_of", "run", "write_fresh"]

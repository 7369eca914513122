"""The file that each emulated node is started with: the scenario's strategy, keys made for this run alone."""

from pathlib import Path
from typing import Any

from roamcast.plugins import load_modules, shipment
from roamcast.runtime.emulate.namespaces import INTERFACE
from roamcast.runtime.emulate.stage import SOCKET
from roamcast.scenario.model import Scenario
from roamcast.scenario.workload import roles
from roamcast.sealing import GroupKey, Identity
from roamcast.toml_text import tables_text
from roamcast.units import Micros, NodeId

FILE = "node.toml"
LOG = "log"
TRACE_BYTES_MAX = 2**36  # large enough that no segment goes: a run needs its whole trace
TRACED_RUN = "emulated"
PRIVATE = 0o600


class Configuration:
    def __init__(self, scenario: Scenario, traces: Path, *, epoch: Micros) -> None:
        """`traces`: where all nodes put their segments; `epoch`: where these have their zero, on the
        machine's monotonic clock."""
        self._traces = traces
        self._scenario = scenario
        self._brokers = roles(scenario).brokers
        self._epoch = epoch
        self._group = GroupKey.generate().to_text()
        modules = scenario.scenario.modules or ()
        self._modules = shipment(load_modules(modules, scenario.base, "scenario.modules"))

    def write(self, node: NodeId, folder: Path) -> None:
        folder.mkdir()
        self._modules.write(folder)
        path = folder / FILE
        path.touch(PRIVATE)
        path.write_text(tables_text(self.tables(node, folder)))

    def tables(self, node: NodeId, folder: Path) -> dict[str, dict[str, Any]]:
        strategy, underlay = self._scenario.strategy, self._scenario.underlay
        tables: dict[str, dict[str, Any]] = {
            "node": {"number": node, "state": str(folder / "state"), "broker": node in self._brokers}
            | ({"modules": self._modules.modules} if self._modules.plugins else {}),
            "keys": {"identity": Identity.generate(node).to_text(), "group": [self._group]},
            "air": {"interface": INTERFACE},
            "strategy": {"name": strategy.name, "options": strategy.options},
            "clients": {"socket": str(folder / SOCKET)},
            "trace": {
                "folder": str(self._traces),
                "run": TRACED_RUN,
                "epoch": self._epoch,
                "bytes_max": TRACE_BYTES_MAX,
            },
        }
        if underlay.name is not None:
            tables["underlay"] = {"name": underlay.name, "options": underlay.options}
        return tables

"""The cost of the opportunistic overlay: figure 7's whole setting, and topology updates by number of changes.

Run: `python benchmarks/opportunistic.py`. It ends with code 1 if a limit is broken:

- 600 simulated seconds with 100 nodes and 40 brokers take at most 20 s of one core.
- In that setting with 20, 40 and 80 brokers, the octets that a broker sends in updates per changed link do
  not grow with the number of brokers. Every broker must learn of every change, so a constant cost is the
  least that a complete view in each broker can have.
- The octets of one update between two neighbours depend on the number of changed links only, not on the
  number of brokers or of all links.
"""

import sys
import time
from functools import partial
from itertools import pairwise
from typing import Any

from roamcast.runtime.sim import Simulation
from roamcast.scenario.load import scenario_from
from roamcast.strategy.opportunistic.messages import CONTENTS, Content, Update, UpdateTaken
from roamcast.strategy.opportunistic.propagation import ROWS_PER_LIFE, Propagation
from roamcast.strategy.opportunistic.reliable import Letter
from roamcast.strategy.opportunistic.rows import Row
from roamcast.strategy.opportunistic.topology import Topology
from roamcast.testing import FakeHost
from roamcast.trace import OverlayChanged, Transmitted
from roamcast.units import NodeId, micros

DURATION_S = 600.0
WARMUP_S = 15.0
FIGURE_7_BROKERS = 40
FIGURE_7_LIMIT_S = 20.0
BROKERS = (20, 40, 80)
PAIR: tuple[NodeId, NodeId] = (100, 101)
TOLERANCE = 1.05  # of the comparisons above; chosen by us


def main() -> int:
    faults = [*whole_runs(), *single_updates()]
    for fault in faults:
        print(f"LIMIT BROKEN: {fault}")
    return 1 if faults else 0


def whole_runs() -> list[str]:
    faults = []
    spent = {}
    print("600 s, 100 nodes, update every 50 s")
    print("brokers  core s  changed links  updates kB  octets per broker and changed link")
    for brokers in BROKERS:
        scenario = scenario_from(tables(brokers))
        began = time.process_time()
        trace = Simulation(scenario).run().trace
        core_s = time.process_time() - began
        warm = micros(WARMUP_S)
        changed = sum(
            change.change.startswith("neighbour") for change in trace.of(OverlayChanged) if change.t >= warm
        )
        octets = sum(f.size for f in trace.of(Transmitted) if f.message == "update" and f.t >= warm)
        spent[brokers] = octets / changed / brokers
        print(f"{brokers:7}  {core_s:6.1f}  {changed:13}  {octets / 1000:10.0f}  {spent[brokers]:10.1f}")
        if brokers == FIGURE_7_BROKERS and core_s > FIGURE_7_LIMIT_S:
            faults.append(f"figure 7's setting takes {core_s:.1f} s, at most {FIGURE_7_LIMIT_S:.0f}")
    for fewer, more in pairwise(BROKERS):
        if spent[more] > TOLERANCE * spent[fewer]:
            faults.append(f"{spent[more]:.1f} octets with {more} brokers, {spent[fewer]:.1f} with {fewer}")
    return faults


def single_updates() -> list[str]:
    faults = []
    print("\nOne update between two neighbours: octets (microseconds) by changed links")
    print("brokers  1 in 1 row    4 in 1 row    4 in 4 rows   16 in 16 rows")
    cases = ((1, 1), (1, 4), (4, 1), (16, 1))
    octets: dict[tuple[int, int], list[int]] = {case: [] for case in cases}
    for brokers in BROKERS:
        shown = []
        for case in cases:
            best_us = float("inf")
            for _ in range(20):
                spent, us = exchange(brokers, *case)
                best_us = min(best_us, us)
            octets[case].append(spent)
            shown.append(f"{spent:5} ({best_us:5.0f})")
        print(f"{brokers:7}  {'  '.join(shown)}")
    for (rows, links), costs in octets.items():
        if max(costs) > TOLERANCE * costs[0]:
            faults.append(f"{links} changed links in {rows} rows cost {costs} octets with {BROKERS} brokers")
    return faults


class Pair:
    """Two neighbours in an overlay in which every broker is a neighbour of a quarter of all brokers."""

    def __init__(self, brokers: int) -> None:
        self._brokers = brokers
        self._waiting: list[tuple[int, bytes]] = []
        self.octets = 0
        self.tables = [Topology(own) for own in PAIR]
        self._sides = [
            Propagation(FakeHost(own), table, partial(self._send, 1 - side))
            for side, (own, table) in enumerate(zip(PAIR, self.tables, strict=True))
        ]
        for broker in range(brokers):
            self.change(broker, 1, 0)
        for _ in range(2):
            self.tell()

    def change(self, broker: NodeId, number: int, links: int) -> None:
        """One of the two learns a row in which this many links have changed."""
        near = {(broker + 1 + n) % self._brokers: 2 if n < links else 1 for n in range(self._brokers // 4)}
        flat = tuple(number for pair in sorted(near.items()) for number in pair)
        self.tables[0].update(Row(broker, ROWS_PER_LIFE + number, flat, 5), 0)

    def tell(self) -> None:
        self._sides[0].tell([PAIR[1]])
        while self._waiting:
            to, body = self._waiting.pop(0)
            content = CONTENTS.decode(body)
            if isinstance(content, Update):
                self._sides[to].on_update(PAIR[1 - to], content)
            elif isinstance(content, UpdateTaken):
                self._sides[to].on_taken(PAIR[1 - to], content)

    def _send(self, side: int, to: NodeId, content: Content, letter: Letter) -> None:
        body = CONTENTS.encode(content)
        self.octets += len(body)
        self._waiting.append((side, body))


def exchange(brokers: int, rows: int, links: int) -> tuple[int, float]:
    """Octets and microseconds of both until the other one knows `links` changed links in each of the rows."""
    pair = Pair(brokers)
    for broker in range(rows):
        pair.change(broker, 2, links)
    before, began = pair.octets, time.process_time_ns()
    pair.tell()
    us = (time.process_time_ns() - began) / 1000
    known = [[(row.broker, row.sequence, row.links) for row in table.rows()] for table in pair.tables]
    assert known[0] == known[1]
    return pair.octets - before, us


def tables(brokers: int) -> dict[str, Any]:
    return {
        "scenario": {"name": "updates", "duration": DURATION_S, "warmup": WARMUP_S, "seed": 1},
        "world": {
            "nodes": 100,
            "area": [1000.0, 1000.0],
            "range": 250.0,
            "mobility": {"model": "random_waypoint", "speed": [1.0, 20.0], "pause": [10.0, 10.0]},
        },
        "roles": {"brokers": brokers, "publishers": 1, "subscribers": 1},
        "workload": {"rate": 0.01},
        "underlay": {"name": "ideal"},
        "strategy": {"name": "opportunistic", "options": {"broker_update": 50.0, "paths": "brokers"}},
    }


if __name__ == "__main__":
    sys.exit(main())

"""What every strategy owes its users, on networks where nothing is lost: one suite for all of them.

What a strategy promises beyond this, and what it costs, is in `tests/scenarios/` under its name.
"""

from roamcast.lab.run.runs import simulate
from roamcast.scenario import scenario_from
from roamcast.strategy import STRATEGIES
from roamcast.testing.contract import StrategyContract

for _name in STRATEGIES.own_names():
    globals()[f"Test{_name.title()}"] = type(f"Test{_name.title()}", (StrategyContract,), {"strategy": _name})


def test_who_should_get_what_is_known_without_asking_a_strategy() -> None:
    apart = [[0.0, 0.0], [100.0, 0.0], [200.0, 0.0], [800.0, 0.0], [900.0, 0.0]]
    mobility = {"model": "static", "positions": apart}
    tables = {
        "scenario": {"name": "contract", "duration": 10.0},
        "world": {"nodes": 5, "area": [1000.0, 1000.0], "range": 120.0, "mobility": mobility},
        "workload": {"publications": [{"t": 1.0, "node": 0}, {"t": 2.0, "node": 3}]},
        "strategy": {"name": "flooding"},
    }
    metrics = simulate(scenario_from(tables)).metrics
    assert (metrics["expected"], metrics["reachable_ratio"], metrics["delivered"]) == (8, 3 / 8, 3)

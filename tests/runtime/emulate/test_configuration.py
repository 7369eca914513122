import tomllib
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from roamcast.daemon.config import load_config
from roamcast.runtime.emulate.conductor import Configuration
from roamcast.scenario import scenario_from
from roamcast.toml_text import tables_text

values: st.SearchStrategy[Any] = st.recursive(
    st.booleans() | st.integers(-(2**62), 2**62) | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


@given(st.dictionaries(st.text(max_size=4), values, max_size=4))
def test_what_is_written_is_read_back(table: dict[str, Any]) -> None:
    assert tomllib.loads(tables_text({"t": table})) == {"t": table}


def test_a_node_takes_the_file_and_only_its_owner_may_read_it(tmp_path: Path) -> None:
    scenario = scenario_from(
        {
            "scenario": {"name": "s", "duration": 1.0},
            "world": {"nodes": 2, "area": [1.0, 1.0], "range": 9.0, "mobility": {"model": "static"}},
            "strategy": {"name": "tree", "options": {"preset": "driving"}},
            "underlay": {"name": "beacons"},
        }
    )
    configuration = Configuration(scenario, tmp_path / "traces", epoch=77)
    for node in range(2):
        configuration.write(node, tmp_path / f"n{node}")
    first, second = (load_config(tmp_path / f"n{node}" / "node.toml") for node in range(2))
    assert (tmp_path / "n0" / "node.toml").stat().st_mode & 0o077 == 0
    assert (first.node.number, second.node.number) == (0, 1)
    assert first.keys.group == second.keys.group and first.keys.identity != second.keys.identity
    assert first.strategy.name == "tree" and first.strategy.options == {"preset": "driving"}
    assert first.underlay.name == "beacons"
    assert first.trace.epoch == 77
    assert first.clients is not None and first.clients.socket == str(tmp_path / "n0" / "s")

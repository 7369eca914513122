from pathlib import Path

import pytest
from click.testing import CliRunner

from roamcast.cli import app
from roamcast.scenario import load_scenario

EXAMPLES = Path(__file__).parents[3] / "examples" / "emulate"


def test_what_cannot_be_emulated_is_one_line_and_exit_code_2() -> None:
    arguments = ["emulate", str(EXAMPLES / "line.toml"), "--set", "underlay.name=ideal"]
    ended = CliRunner().invoke(app, arguments)
    assert ended.exit_code == 2
    assert ended.stdout == ""
    assert ended.stderr == "roamcast: underlay.name: is 'ideal', which only a simulation can give to a node\n"


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.toml")), ids=lambda path: path.stem)
def test_the_examples_are_scenarios_also_with_memorized_events(path: Path) -> None:
    assert load_scenario(path).scenario.name == path.stem
    kept = load_scenario(path, overrides=["workload.class=memorized", "workload.lifetime=120"])
    assert kept.workload.lifetime == 120

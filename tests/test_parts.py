"""`roamcast strategies` and its like: everything that a file can name, with its options and their meaning."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from roamcast import plugins
from roamcast.cli import app
from roamcast.errors import InputError
from roamcast.parts import describe, kinds, to_json, to_text
from roamcast.registry import BUILT_IN

GOSSIP = Path(__file__).parents[1] / "examples" / "gossip"


@pytest.mark.parametrize("kind", kinds())
def test_every_part_of_every_kind_can_be_described(kind: str) -> None:
    listed = describe(kind)
    assert [part.name for part in listed] and all(part.options == [] for part in listed)
    for part in listed:
        (whole,) = describe(kind, part.name)
        if whole.origin == BUILT_IN:
            assert whole.problem is None and whole.meaning, f"{part.name} says nothing of itself"
        assert to_text([whole]) and json.loads(to_json([whole]))["parts"][0]["name"] == part.name


def test_options_come_with_type_range_default_and_the_words_of_the_struct() -> None:
    (flooding,) = describe("strategies", "flooding")
    jitter, hops, _ = flooding.options
    assert jitter == ("jitter", "a number from 0 to 10", "0.02", "seconds; each relay waits up to this")
    assert (hops.name, hops.allowed, hops.default) == ("hop_limit", "a whole number from 1 to 255", "64")
    assert flooding.declared["carries_sealed"] is True and flooding.declared["default_underlay"] == "none"
    (epidemic,) = describe("strategies", "epidemic")
    options = {option.name: option for option in epidemic.options}
    assert options["suppress"].meaning.startswith("Do not pass a copy on if, by the beacons")
    assert options["suppress"].allowed == "true or false" and options["suppress"].default == "true"
    (tree,) = describe("strategies", "tree")  # its options are another struct's, inherited
    assert sum(bool(option.meaning) for option in tree.options) > len(tree.options) / 2
    (chapar,) = describe("strategies", "chapar")
    brokers = next(option for option in chapar.options if option.name == "brokers")
    assert brokers.meaning == '"all": every node a broker, the baseline of figure 8'


def test_a_plugin_is_listed_with_its_origin_and_options(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (GOSSIP / "gossip.py").read_text().replace('"gossip"', '"listed"')
    (tmp_path / "listed.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    try:
        shown = CliRunner().invoke(app, ["strategies", "listed", "--module", "listed"])
        assert shown.exit_code == 0 and "probability  (default 0.7; a number from 0 to 1)" in shown.output
        assert "that a node passes an event on" in shown.output
        everything = CliRunner().invoke(app, ["strategies", "--json", "--module", "listed"])
        found = {part["name"]: part["origin"] for part in json.loads(everything.output)["parts"]}
        assert found["listed"] == "listed.py" and found["tree"] == BUILT_IN
    finally:
        plugins._forget("listed")


def test_an_unknown_kind_or_name_gets_the_nearest() -> None:
    with pytest.raises(InputError, match=r"did you mean `radios`"):
        describe("radio")
    with pytest.raises(InputError, match=r"did you mean `flooding`"):
        describe("strategies", "floding")
    assert CliRunner().invoke(app, ["parts"]).output.split() == kinds()


def test_a_bad_entry_point_is_listed_and_told_and_harms_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = tmp_path / "bad-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: bad\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[roamcast.strategies]\nsour = no_such_module\ntree = no_such_module\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    listed = describe("strategies")
    assert [part.origin for part in listed if part.name == "sour"] == ["entry point of bad 1.0"]
    assert [part.problem for part in listed if part.problem] == [
        "strategy 'tree' (entry point of bad 1.0): has the name of another, built in"
    ]
    (sour,) = describe("strategies", "sour")
    assert sour.problem is not None and "sour' (entry point of bad 1.0): cannot be imported" in sour.problem
    (tree,) = describe("strategies", "tree")
    assert tree.problem is None and tree.options


def test_a_metric_of_a_plugin_is_measured_and_a_bad_one_is_refused(tmp_path: Path) -> None:
    from roamcast.lab.run.metrics import METRICS
    from roamcast.lab.run.runs import simulate
    from roamcast.scenario import scenario_from

    module = (
        "from roamcast.lab.run.metrics import METRICS, Metric\n"
        "METRICS.add('largest_frame', Metric('octets', 'the largest frame', 'frames', {value!r}))\n"
    )
    (tmp_path / "measuring.py").write_text(module.format(value="MAX(size)"))
    tables = {
        "scenario": {"name": "m", "duration": 3.0, "modules": ["measuring"]},
        "world": {"nodes": 2, "area": [9.0, 9.0], "range": 20.0, "mobility": {"model": "static"}},
        "strategy": {"name": "flooding"},
    }
    try:
        largest = simulate(scenario_from(tables, tmp_path)).metrics["largest_frame"]
        assert largest is not None and largest > 256
        (described,) = describe("metrics", "largest_frame")
        assert described.meaning == "the largest frame" and described.origin.endswith("measuring.py")
    finally:
        plugins._forget("measuring")
    assert "largest_frame" not in METRICS
    (tmp_path / "measuring.py").write_text(module.format(value="MAX(nonsense)"))
    with pytest.raises(InputError, match=r"metric 'largest_frame' \(.*measuring.py\): is no SQL .*nonsense"):
        scenario_from(tables, tmp_path)
    assert "largest_frame" not in METRICS

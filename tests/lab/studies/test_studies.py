"""Figures whose scenario comes from a study."""

from pathlib import Path
from typing import Any

import pytest

from roamcast.errors import InputError
from roamcast.lab.published import load_figure
from roamcast.lab.published.agreement import r_squared
from roamcast.lab.run.metrics import Figure
from roamcast.lab.studies.opportunistic_channels import Balancing, Campus, RelocationStudy
from roamcast.lab.studies.opportunistic_overlays import Overload
from roamcast.lab.studies.study import Study
from roamcast.lab.sweep.experiment import experiment_from
from roamcast.lab.sweep.jobs import batched
from roamcast.lab.sweep.sweep import Sweep

FIGURE = """
title = "A test"
source = "nowhere"
study = "balancing"

[axes]
adaptive = [true, false]
consumers = [1, 2, 4, 6]

[profile.quick]
replications = 2
[profile.full]
replications = 2

[[quantity]]
name = "one broker is slower with each consumer"
metric = "event_ms"
at = { adaptive = false }
"""


def figure(folder: Path, claim: str, text: str = FIGURE) -> Path:
    (folder / "paper").mkdir(parents=True, exist_ok=True)
    path = folder / "paper" / "figure.toml"
    path.write_text(f"{text}claim = {claim}\n")
    return path


def measured(study: Study, seed: int = 1) -> dict[str, Figure]:
    return study.run(seed).metrics


LINEAR = '{ linear = "consumers" }'


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ('"balancing"', '"balance"', "no study.*balancing"),
        ("[1, 2, 4, 6]", "[0, 2]", "consumers"),
        ("[1, 2, 4, 6]", "6", "axes.consumers: is 6; allowed: a list"),
        ("event_ms", "gain_max", "no metric"),
        ("consumers =", "consumer =", "consumer"),
        ('study = "balancing"', "", "allowed: one"),
    ],
)
def test_what_is_wrong_is_told_in_one_line(tmp_path: Path, old: str, new: str, told: str) -> None:
    with pytest.raises(InputError, match=told) as caught:
        load_figure(figure(tmp_path, LINEAR, FIGURE.replace(old, new)))
    assert "\n" not in str(caught.value)


def test_linear_needs_an_axis(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not to follow"):
        load_figure(figure(tmp_path, '{ linear = "suppliers" }'))


def test_r_squared_by_hand() -> None:
    assert r_squared([1, 2, 3], [2, 4, 6]) == pytest.approx(1)
    assert r_squared([1, 2, 3], [1, 3, 2]) == pytest.approx(0.25)
    assert r_squared([1, 2, 3], [5, 5, 5]) == 0


def test_brokers_are_made_as_consumers_join_and_share_their_modulators() -> None:
    alone = measured(Balancing(consumers=8, adaptive=False))
    shared = measured(Balancing(consumers=8))
    assert (alone["brokers"], shared["brokers"]) == (1, 2)
    assert alone["arrived"] == shared["arrived"] == 1  # modulators have moved meanwhile
    moved = shared["modulators_moved"]
    assert alone["modulators_moved"] == 0 and moved is not None and moved > 0
    assert alone["event_ms"] == pytest.approx(160, abs=5)  # eight after the other
    assert shared["event_ms"] is not None and 80 <= shared["event_ms"] <= 125  # four to six


def test_without_free_machines_the_load_stays_where_it_is() -> None:
    alone = measured(Balancing(consumers=8, machines=1))
    assert alone["brokers"] == 1 and alone["event_ms"] == pytest.approx(160, abs=5)


def test_a_client_that_changed_its_subnet_has_the_delay_of_before_with_a_home_that_follows() -> None:
    follows, stays = measured(Campus(mode="opportunistic")), measured(Campus(mode="static"))
    for found in (follows, stays):
        assert found["arrived_before"] == found["arrived_after"] == 1
    assert follows["delay_ms_before"] == pytest.approx(44, abs=1)  # four hops of 10 ms and one more each
    assert follows["delay_ms_after"] is not None and follows["delay_ms_after"] < 48
    assert stays["delay_ms_after"] is not None and stays["delay_ms_after"] > 54
    assert stays["wireless_ms_after"] == pytest.approx(follows["wireless_ms_after"], rel=0.02)


def test_a_real_relocation_takes_longer_with_more_suppliers_and_loses_nothing() -> None:
    few, many = (measured(RelocationStudy(suppliers=n, moves=2), seed=2) for n in (1, 8))
    assert few["relocations"] == many["relocations"] == 2
    assert few["lost"] == few["doubled"] == many["lost"] == many["doubled"] == 0
    assert few["relocation_ms"] is not None and many["relocation_ms"] is not None
    assert few["relocation_ms"] < many["relocation_ms"]


def test_modulator_costs_make_the_average_load_that_was_asked_for() -> None:
    found = measured(Overload(load=0.3, duration=60.0))
    assert found["load_mean"] == pytest.approx(0.3, abs=0.03) and found["overloaded_share"] == 0
    assert found["path_hops"] is not None and found["path_hops"] > 1


def test_the_longest_runs_come_first_whether_of_a_scenario_or_a_study(tmp_path: Path) -> None:
    study = load_figure(figure(tmp_path / "published", LINEAR)).experiment("quick")
    tables: dict[str, Any] = {
        "scenario": {"name": "long", "duration": 600.0},
        "world": {"area": [900.0, 900.0], "range": 99.0, "mobility": {"model": "static"}},
        "strategy": {"name": "flooding"},
    }
    sizes = experiment_from("sizes", tables, {"world.nodes": [1, 100]})
    sweeps = [Sweep(each, tmp_path / each.name[:5], resume=False) for each in (study, sizes)]
    first, *between, last = batched([each.missing() for each in sweeps], workers=100)
    assert (first.job, first.items) == (1, (1,)) and (last.job, last.items) == (1, (0,))
    assert {batch.job for batch in between} == {0}

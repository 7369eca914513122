"""Sweeps and studies of several figures as one set of tasks, and how an interrupted reproduction goes on."""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pyspark.sql import SparkSession

from roamcast.lab.published.reproduce import Reproduction, reproduce
from roamcast.lab.sweep import jobs as jobs_module
from roamcast.lab.sweep import sweep as sweep_module

HEAD = 'title = "A test"\nsource = "nowhere"\n'
PROFILES = "[profile.quick]\nreplications = 2\n[profile.full]\nreplications = 3\n"
STUDY = f"""{HEAD}study = "balancing"
[axes]
adaptive = [true, false]
consumers = [1, 2, 4, 6]
{PROFILES}
[[quantity]]
name = "one broker is slower with each consumer"
metric = "event_ms"
at = {{ adaptive = false }}
claim = {{ linear = "consumers" }}
"""
SWEEP = f"""{HEAD}
[scenario.scenario]
name = "tiny"
duration = 4.0
[scenario.world]
nodes = 4
area = [100.0, 100.0]
range = 150.0
mobility = {{ model = "static" }}
[scenario.strategy]
name = "flooding"
[axes]
"world.radio.model" = ["ideal", "csma"]
{PROFILES}
[[quantity]]
name = "all arrive"
metric = "delivery_ratio"
at = {{ "world.radio.model" = "ideal" }}
claim = {{ at_least = 0.99 }}
"""

pytestmark = pytest.mark.spark


class Reproduced(NamedTuple):
    folder: Path
    first: Reproduction
    jobs: list[list[int]]  # for each set of tasks, how many runs of each figure were in it

    def again(self) -> Reproduction:
        return reproduce(None, "quick", self.folder / "out", published=self.folder / "published", resume=True)


@pytest.fixture(scope="module")
def reproduced(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("reproduced")
    (folder / "published" / "paper").mkdir(parents=True)
    for name, text in (("study", STUDY), ("sweep", SWEEP)):
        (folder / "published" / "paper" / f"{name}.toml").write_text(text)
    jobs: list[list[int]] = []
    run_jobs = jobs_module.run_jobs

    def counted(spark: SparkSession, given: Sequence[Any], items: Sequence[Sequence[Any]]) -> Any:
        jobs.append([len(of_job) for of_job in items])
        return run_jobs(spark, given, items)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sweep_module, "run_jobs", counted)
        found = Reproduced(folder, Reproduction([], 0, ""), jobs)
        yield found._replace(first=found.again())


def test_the_runs_of_all_figures_are_one_set_of_tasks(reproduced: Reproduced) -> None:
    assert reproduced.jobs[0] == [16, 4]
    study, whole = reproduced.first.rows
    assert study.agrees and study.ours == pytest.approx(1) and study.rule.startswith("linear along consumers")
    assert whole.agrees and reproduced.first.failed == 0


def test_a_killed_reproduction_continues_inside_its_study(reproduced: Reproduced) -> None:
    study = reproduced.folder / "out" / "paper" / "study"
    manifests = sorted((study / "manifest").iterdir())
    kept = {path: path.stat().st_mtime_ns for path in manifests[1:]}
    assert kept, "the study was committed in one piece: nothing to continue"
    manifests[0].unlink()  # as if the command had been killed before it was committed
    for made in ("runs", "metrics", "summary"):
        shutil.rmtree(study / made)
    done = len(reproduced.jobs)
    assert reproduced.again().rows == reproduced.first.rows
    ((of_study, of_sweep),) = reproduced.jobs[done:]
    assert 0 < of_study < 16 and of_sweep == 0
    assert {path: path.stat().st_mtime_ns for path in kept} == kept
    assert reproduced.again().rows == reproduced.first.rows and len(reproduced.jobs) == done + 1

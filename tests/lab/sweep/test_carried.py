"""Small files go with the job, so that a worker needs no folder of the driver's."""

from pathlib import Path

import pytest

from roamcast.lab.sweep import jobs as carried_module
from roamcast.lab.sweep.experiment import Experiment, experiment_from
from roamcast.lab.sweep.jobs import carried, unpacked
from roamcast.scenario import scenario_from

PLAN = "time,i,j,state\n0,0,1,up\n2,1,2,up\n"


def experiment(folder: Path, name: str) -> Experiment:
    tables = {
        "scenario": {"name": "plan", "duration": 4.0},
        "world": {"contacts": name},
        "strategy": {"name": "flooding"},
    }
    return experiment_from("plan", tables, {"workload.rate": [1.0]}, base=folder)


def test_a_worker_finds_the_files_without_the_drivers_folder(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "plan.csv").write_text(PLAN)
    planned = experiment(tmp_path, "data/plan.csv")
    files = carried(planned)
    (tmp_path / "data" / "plan.csv").unlink()
    (plan,) = planned.runs()
    assert scenario_from(planned.tables, unpacked(files), plan.settings).nodes == 3


def test_what_lies_outside_the_folder_or_is_large_is_not_carried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "plan.csv").write_text(PLAN)
    (tmp_path / "inside").mkdir()
    assert carried(experiment(tmp_path / "inside", "../plan.csv")) == ()
    monkeypatch.setattr(carried_module, "CARRIED_MAX", len(PLAN) - 1)
    assert carried(experiment(tmp_path, "plan.csv")) == ()

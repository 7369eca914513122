"""Folders of another version, clocks that differ, a store that loses a write: the right figures, or one line
that names the file."""

import time
from pathlib import Path

import msgspec
import pytest
from tests.lab.sweep.chaos import experiment_in, same_rows, steady

import roamcast.lab as lab
from roamcast.errors import FileError, RoamcastError
from roamcast.lab.storage import Storage
from roamcast.lab.sweep.experiment import Experiment
from roamcast.lab.sweep.folder import EXPERIMENT_FILE, SweepFolder
from roamcast.lab.sweep.jobs import SweepJob
from roamcast.lab.sweep.results import read_results
from roamcast.lab.sweep.sweep import Sweep

RUNS = 4


def swept_and_read(experiment: Experiment, out: Path) -> None:
    swept(experiment, out)
    lab.open(out, engine="arrow").table("metrics")


def swept(experiment: Experiment, out: Path, resume: bool = False) -> None:
    """A whole sweep without Spark, a segment for each run."""
    with Sweep(experiment, out, resume) as made:
        made.claim()
        numbers = [item.number for item in made.missing()]
        committed = SweepJob(made.folder.storage, experiment, {}, 0.0).work(numbers, 0)
        made.check_is_seen(committed)
        made.finish()


@pytest.fixture(scope="module")
def experiment(tmp_path_factory: pytest.TempPathFactory) -> Experiment:
    return experiment_in(tmp_path_factory.mktemp("lost"), RUNS)


@pytest.fixture(scope="module")
def whole(experiment: Experiment, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("whole") / "out"
    swept(experiment, out)
    return out


@pytest.mark.parametrize(
    "kind", ["experiment.json", "manifest/", "deliveries/", "expected/", "tables.json", "metrics/", "claim/"]
)
def test_a_store_that_loses_a_write_is_noticed_with_the_files_name(
    kind: str, experiment: Experiment, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, lost = Storage.write, list[str]()

    def loses_one(self: Storage, file: str, data: bytes) -> None:
        if file.startswith(kind) and not lost:
            lost.append(file)
        else:
            write(self, file, data)

    out = tmp_path / "out"
    monkeypatch.setattr(Storage, "write", loses_one)
    try:
        with pytest.raises(RoamcastError) as told:
            swept_and_read(experiment, out)
        assert lost and str(out) in str(told.value) and len(str(told.value).splitlines()) == 1
        assert lost[0] in str(told.value) or kind == "claim/"
    finally:
        monkeypatch.undo()
    swept(experiment, out, resume=(out / EXPERIMENT_FILE).exists())
    assert same_rows(out, whole)
    assert steady(read_results(out)) == steady(read_results(whole))


def test_a_folder_of_another_version_is_refused_with_its_name(
    experiment: Experiment, whole: Path, tmp_path: Path
) -> None:
    document = msgspec.json.decode((whole / EXPERIMENT_FILE).read_bytes())
    for version, told in ((1, "by Roamcast 0.2"), (3, "by Roamcast 0.2"), (None, "by Roamcast 0.2")):
        document["folder"] = version
        (tmp_path / EXPERIMENT_FILE).write_bytes(msgspec.json.encode(document | {"roamcast": "0.2"}))
        problem = rf"experiment\.json: was written {told}, in a layout that this version does not read"
        with pytest.raises(FileError, match=problem):
            read_results(tmp_path)
        with pytest.raises(FileError, match=problem):
            Sweep(experiment, tmp_path, resume=True)
        with pytest.raises(FileError, match=problem):
            lab.open(tmp_path)


def test_workers_whose_clocks_differ_by_years_give_the_same(
    experiment: Experiment, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One worker is in 1999, the next in 2040; a run that both did counts once, whoever seems later."""
    out = tmp_path / "out"
    folder = SweepFolder(out)
    folder.claim(experiment)
    for year, numbers in ((1999, [0, 1]), (2040, [1, 2, 3])):
        with monkeypatch.context() as patch:
            seconds = (year - 1970) * 31_556_952.0
            patch.setattr(time, "time", lambda seconds=seconds: seconds)
            patch.setattr(time, "time_ns", lambda seconds=seconds: int(seconds * 1e9))
            SweepJob(folder.storage, experiment, {}, 0.0).work(numbers, 0)
    swept(experiment, out, resume=True)
    assert same_rows(out, whole)
    assert steady(read_results(out)) == steady(read_results(whole))

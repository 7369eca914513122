"""One folder, one code, one writer: what else would be mixed is refused, before anything is written."""

import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.lab.storage.object_store import ObjectStore
from tests.lab.sweep.chaos import experiment_in

import roamcast
from roamcast.errors import FileError, InputError, RoamcastError
from roamcast.lab.spark import package
from roamcast.lab.storage import Storage, claim
from roamcast.lab.storage.claim import FolderClaim
from roamcast.lab.storage.sealed import put_manifest
from roamcast.lab.sweep import folder as folder_module
from roamcast.lab.sweep import sweep as sweep_module
from roamcast.lab.sweep.experiment import Experiment
from roamcast.lab.sweep.folder import EXPERIMENT_FILE, SweepFolder
from roamcast.lab.sweep.jobs import SweepJob
from roamcast.lab.sweep.results import read_results
from roamcast.lab.sweep.sweep import Sweep

PACKAGE = Path(roamcast.__file__).parent
EXPERIMENT = """
experiment = { name = "links", scenario = "links.toml", replications = 2 }
axes = { "workload.rate" = [1.0, 1.25] }
"""


def swept(base: Path) -> tuple[Experiment, SweepFolder]:
    """Four runs, each in a segment of its own, made without Spark."""
    experiment = experiment_in(base, 4)
    folder = SweepFolder(base / "out")
    folder.claim(experiment)
    SweepJob(folder.storage, experiment, {}, commit_seconds=0.0).work(range(4), 0)
    return experiment, folder


def by_other_code(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (folder_module, sweep_module):
        monkeypatch.setattr(module, "code_digest", lambda: "0123456789abcdef")


def test_a_sweep_is_not_resumed_by_other_code(tmp_path: Path) -> None:
    """The auditor's case, from the command line: the package is copied and one of its constants changed."""
    swept(tmp_path)
    (tmp_path / "E.toml").write_text(EXPERIMENT)
    shutil.copytree(PACKAGE, tmp_path / "src" / "roamcast", ignore=shutil.ignore_patterns("__pycache__"))
    changed = tmp_path / "src" / "roamcast" / "strategy" / "flooding.py"
    text = changed.read_text()
    assert "= 64" in text
    changed.write_text(text.replace("= 64", "= 1", 1))
    next((tmp_path / "out" / "manifest").iterdir()).unlink()
    command = [sys.executable, "-m", "roamcast", "sweep", "E.toml", "--out", "out", "--resume"]
    ended = subprocess.run(
        command,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path / "src")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 2, ended.stderr
    assert "was run by other code" in ended.stderr and "--resume --anew" in ended.stderr
    assert len(list((tmp_path / "out" / "manifest").iterdir())) == 3, "nothing was touched"


def test_told_so_everything_of_other_code_is_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment, folder = swept(tmp_path)
    old = folder.code
    with Sweep(experiment, tmp_path / "out", resume=True) as same:
        assert same.missing() == []
    by_other_code(monkeypatch)
    with pytest.raises(InputError, match=f"was run by other code \\({old}, this is 0123456789abcdef\\)"):
        Sweep(experiment, tmp_path / "out", resume=True)
    with Sweep(experiment, tmp_path / "out", resume=True, anew=True) as made:
        assert len(made.missing()) == 4
        made.claim()
        made.job().work(range(4), 0)
        assert made.missing() == []
    assert {segment.code for segment in SweepFolder(tmp_path / "out").segments()} == {"0123456789abcdef"}
    assert len(list((tmp_path / "out" / "deliveries").iterdir())) == 1, "the old rows are gone"


def test_a_segment_of_other_code_is_named_by_all_who_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The package was changed while a sweep ran, or somebody copied a segment here."""
    experiment, folder = swept(tmp_path)
    manifest = folder.storage.name(folder.segments()[0].manifest)
    Path(manifest).unlink()
    by_other_code(monkeypatch)
    SweepJob(folder.storage, experiment, {}, 0.0).work([0], 0)
    monkeypatch.undo()
    with pytest.raises(
        FileError, match=r"0000-1-\S+json: is of other code \(0123456789abcdef\) than the rest"
    ):
        read_results(tmp_path / "out")
    with Sweep(experiment, tmp_path / "out", resume=True) as made:
        assert [item.number for item in made.missing()] == [0], "it is set aside and run again"


def test_a_folder_of_before_the_digests_is_read_but_not_continued(tmp_path: Path) -> None:
    experiment, folder = swept(tmp_path)
    for segment in folder.segments():
        put_manifest(folder.storage, segment.manifest, msgspec.structs.replace(segment, code=""))
    document: dict[str, Any] = msgspec.json.decode((tmp_path / "out" / EXPERIMENT_FILE).read_bytes())
    del document["code"]
    (tmp_path / "out" / EXPERIMENT_FILE).write_bytes(msgspec.json.encode(document))
    assert len(read_results(tmp_path / "out").runs) == 4
    with pytest.raises(InputError, match=r"other code \(unknown, this is "):
        Sweep(experiment, tmp_path / "out", resume=True)


LOADED = """
import sys
from pathlib import Path
from tests.lab.sweep.chaos import experiment_in
from roamcast.lab.sweep.folder import SweepFolder
from roamcast.lab.sweep.jobs import SweepJob
import importlib, pkgutil
import roamcast.lab.studies as studies
experiment, folder = experiment_in(Path(sys.argv[1]), 1), SweepFolder(Path(sys.argv[1]) / "out")
folder.claim(experiment)
SweepJob(folder.storage, experiment, {}, 0.0).work([0], 0)
for found in pkgutil.walk_packages(studies.__path__, studies.__name__ + "."):
    importlib.import_module(found.name)
print(*(name for name in sys.modules if name.startswith("roamcast.")))
"""


def test_the_digest_is_of_all_that_a_run_loads(tmp_path: Path) -> None:
    command = [sys.executable, "-c", LOADED, str(tmp_path)]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    loaded = {name.removeprefix("roamcast.").replace(".", "/") for name in said.split()}
    assert len(loaded) > 100
    assert not {name for name in loaded if f"{name}/".startswith(package.BESIDE_RUNS)}
    assert all((PACKAGE / room).exists() for room in package.BESIDE_RUNS), "no room that is gone"


def test_a_worker_with_the_zip_has_the_same_digest() -> None:
    script = "import sys; sys.path.insert(0, sys.argv[1])\n"
    script += "import roamcast.lab.spark.package as p; print(p.roamcast.__file__, p.code_digest())"
    command = [sys.executable, "-c", script, str(package.package_zip())]
    file, digest = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert ".zip/" in file and digest == package.code_digest()


# One writer.


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claim, "BEAT_SECONDS", 0.05)
    monkeypatch.setattr(claim, "STALE_SECONDS", 0.6)


@pytest.mark.usefixtures("quick")
def test_a_second_sweep_into_a_folder_is_refused_and_told_whose_it_is(tmp_path: Path) -> None:
    """The auditor's case: both found the folder free, and both began."""
    experiment = experiment_in(tmp_path, 4)
    out = tmp_path / "out"
    with Sweep(experiment, out, False) as first, Sweep(experiment, out, False) as second:
        first.claim()
        before = sorted(out.rglob("*.json"))
        with pytest.raises(InputError, match=rf"is written by .* on .* \(process {os.getpid()}\) since 2"):
            second.claim()
        with pytest.raises(InputError, match="is written by"):
            Sweep(experiment, out, resume=True)
        assert sorted(out.rglob("*.json")) == before
        first.claim()  # again, after Java died
    assert not (out / "claim").exists()
    with Sweep(experiment, out, resume=True):
        pass


@pytest.mark.usefixtures("quick")
def test_one_who_comes_after_the_other_has_ended_looks_again(tmp_path: Path) -> None:
    experiment = experiment_in(tmp_path, 4)
    late = Sweep(experiment, tmp_path / "out", False)
    with Sweep(experiment, tmp_path / "out", False) as first:
        first.claim()
    with pytest.raises(InputError, match="holds this experiment already"):
        late.claim()
    assert not (tmp_path / "out" / "claim").exists()


HOLDS = """
import sys, time
from roamcast.lab.storage import Storage
from roamcast.lab.storage.claim import FolderClaim
from roamcast.lab.storage.sealed import put_manifest
held = FolderClaim(Storage.open(sys.argv[1]))
print("held", flush=True)
time.sleep(600)
"""


def test_the_claim_of_a_killed_process_is_taken_over_at_once(tmp_path: Path) -> None:
    holder = subprocess.Popen([sys.executable, "-c", HOLDS, str(tmp_path)], stdout=subprocess.PIPE)
    assert holder.stdout is not None
    with holder:
        assert holder.stdout.readline() == b"held\n"
        holder.kill()
    began = time.monotonic()
    FolderClaim(Storage.open(tmp_path)).release()
    assert time.monotonic() - began < claim.STALE_SECONDS / 4
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("quick")
def test_a_claim_of_another_machine_is_taken_over_when_it_stands_still_and_not_before(
    tmp_path: Path, object_store: ObjectStore
) -> None:
    """Its clock is years off; only whether its number grows counts. The same on a disk and in a store."""
    for storage in (Storage.open(tmp_path), Storage.open(object_store.uri("claimed"))):
        other = claim.Claimant("ann on far", "far", 1, "1999-01-01 00:00:00+00:00")
        ended = threading.Event()

        def beat(storage: Storage = storage, other: Any = other, ended: threading.Event = ended) -> None:
            while not ended.wait(0.05):
                other.beats += 1
                storage.write("claim/other.json", msgspec.json.encode(other))

        storage.write("claim/other.json", msgspec.json.encode(other))
        thread = threading.Thread(target=beat)
        thread.start()
        try:
            with pytest.raises(InputError, match=r"ann on far \(process 1\) since 1999"):
                FolderClaim(storage)
        finally:
            ended.set()
            thread.join()
        assert list(storage.files()) == ["claim/other.json"]
        began = time.monotonic()
        held = FolderClaim(storage)
        assert time.monotonic() - began >= claim.STALE_SECONDS
        held.check()
        held.release()
        assert list(storage.files()) == []


@pytest.mark.usefixtures("quick")
def test_who_was_thought_dead_and_goes_on_is_told(tmp_path: Path) -> None:
    held = FolderClaim(Storage.open(tmp_path))
    next((tmp_path / "claim").iterdir()).unlink()
    with pytest.raises(RoamcastError, match="was taken over by another process"):
        held.check()
    held.release()


def test_half_a_claim_is_nobodys(tmp_path: Path) -> None:
    (tmp_path / "claim").mkdir()
    (tmp_path / "claim" / "x.json").write_bytes(b'{"who": "an')
    FolderClaim(Storage.open(tmp_path)).release()
    assert list(tmp_path.iterdir()) == []

"""The faults of `tests/lab/sweep/test_chaos.py` at random places and moments, over and over."""

import shutil
import subprocess
import sys
import time
from pathlib import Path
from random import Random

import psutil
import pytest
from tests.lab.sweep.chaos import damaged_in_every_way, experiment_in, same_rows, steady

from roamcast.lab.sweep.folder import SweepFolder
from roamcast.lab.sweep.jobs import SweepJob
from roamcast.lab.sweep.results import read_results
from roamcast.lab.sweep.sweep import sweep

RUNS = 60
SCRIPT = """
import sys
from pathlib import Path
from tests.lab.sweep.chaos import experiment_in
from roamcast.lab.sweep.sweep import sweep
base = Path(sys.argv[1])
sweep(experiment_in(base, 60), base / "out", resume=True)
"""


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.mktemp("whole")
    experiment = experiment_in(base, RUNS)
    folder = SweepFolder(base / "out")
    folder.claim(experiment)
    SweepJob(folder.storage, experiment, {}, commit_seconds=0.0).work(range(RUNS), 0)
    return base


@pytest.mark.spark
@pytest.mark.parametrize("seed", range(40))
def test_random_faults_are_named_and_healed(whole: Path, tmp_path: Path, seed: int) -> None:
    shutil.copytree(whole, tmp_path / "base")
    out = tmp_path / "base" / "out"
    faults = damaged_in_every_way(out, Random(seed))
    result = sweep(experiment_in(tmp_path / "base", RUNS), out, resume=True)
    for file in faults:
        assert any(line.startswith(f"{file}: ") for line in result.mended), (seed, file)
    assert steady(read_results(out)) == steady(read_results(whole / "out"))
    assert same_rows(out, whole / "out")


@pytest.mark.spark
@pytest.mark.parametrize("seed", range(12))
def test_processes_killed_at_random_moments_lose_nothing(whole: Path, tmp_path: Path, seed: int) -> None:
    """The driver, Java or a worker of a command, at a random moment; then what is left is resumed."""
    draw = Random(seed)
    experiment = experiment_in(tmp_path, RUNS)
    driver = subprocess.Popen([sys.executable, "-c", SCRIPT, tmp_path])
    try:
        time.sleep(draw.uniform(5.0, 25.0))
        family = psutil.Process(driver.pid).children(recursive=True)
        victim = draw.choice([psutil.Process(driver.pid), *family]) if family else psutil.Process(driver.pid)
        victim.kill()
        driver.wait(300)
    except psutil.NoSuchProcess:
        pass  # it had ended
    finally:
        for process in psutil.Process(driver.pid).children(recursive=True) if driver.poll() is None else []:
            process.kill()
        driver.kill()
        driver.wait()
    result = sweep(experiment, tmp_path / "out", resume=True)
    assert (result.done, result.failed) == (RUNS, 0), seed
    assert steady(read_results(tmp_path / "out")) == steady(read_results(whole / "out"))
    assert same_rows(tmp_path / "out", whole / "out")

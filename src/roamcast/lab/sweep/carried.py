"""Small files that runs read, carried to the workers: a cluster need not share the folder of a scenario.

Recordings that are larger stay where they are and must be in storage that every worker sees.
"""

import atexit
import shutil
import tempfile
from functools import cache
from pathlib import Path, PurePath
from typing import TypeAlias

from roamcast.lab.sweep.experiment import Experiment

CARRIED_MAX = (
    1_000_000  # octets of all files together; chosen by us: what costs nothing to send with each job
)

Carried: TypeAlias = tuple[tuple[str, bytes], ...]
"""Names relative to the scenario's folder, and contents."""


def carried(experiment: Experiment) -> Carried:
    """All files that the experiment's runs read; none if they are too large, or outside its
    folder."""
    names = [name for name in experiment.files if name not in experiment.plugins.digests]
    if any(PurePath(name).is_absolute() or ".." in PurePath(name).parts for name in names):
        return ()
    try:
        if sum((experiment.base / name).stat().st_size for name in names) > CARRIED_MAX:
            return ()
        return tuple((name, (experiment.base / name).read_bytes()) for name in names)
    except OSError:  # a run that reads it says which file, and why not
        return ()


def unpacked(files: Carried) -> Path:
    """On a worker: a folder with the files, made once and removed with this process, or with Spark's own."""
    folder = _unpacked(files)
    if not folder.is_dir():  # the session that it was made for has ended, and this process serves another
        _unpacked.cache_clear()
        folder = _unpacked(files)
    return folder


@cache
def _unpacked(files: Carried) -> Path:
    folder = Path(tempfile.mkdtemp(prefix="roamcast-files-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    for name, content in files:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder

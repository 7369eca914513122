"""This package as files: the zip that workers get, and the digest of the code that results depend on."""

import atexit
import hashlib
import shutil
import tempfile
import zipfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import roamcast

# What no run loads (`tests/lab/sweep/test_mixture.py` looks): a change here changes no result.
BESIDE_RUNS = (
    *("cli/", "client/", "daemon/", "gateway/", "pages/", "testing/"),
    *(f"lab/{room}" for room in ("groups/", "league/", "live/", "notebook.py", "play/", "recordings/")),
    *("lab/report/", "lab/why/"),
)


@cache
def code_digest() -> str:
    """Of the code of this process that a run's results depend on."""
    found = hashlib.sha256()
    for name, content in _files():
        if not name.startswith(BESIDE_RUNS):
            found.update(f"{name}\0{len(content)}\0".encode() + content)
    return found.hexdigest()[:16]


@cache
def package_zip() -> Path:
    """Sorted and without dates, so that its bytes are always the same; named after them, because Spark
    refuses a second file of the same name."""
    folder = Path(tempfile.mkdtemp(prefix="roamcast-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    target = folder / "roamcast.zip"
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in _files():
            archive.writestr(zipfile.ZipInfo(f"{roamcast.__name__}/{name}"), content)
    digest = hashlib.sha256(target.read_bytes()).hexdigest()[:12]
    return target.rename(folder / f"roamcast-{digest}.zip")


def _files() -> Iterator[tuple[str, bytes]]:
    """Sorted by name. A worker's package may lie in the zip that it was sent."""
    source = Path(roamcast.__file__).parent
    if source.is_dir():
        names = {path.relative_to(source).as_posix(): path for path in source.rglob("*") if path.is_file()}
        for name in sorted(names):
            if not name.endswith(".pyc"):
                yield name, names[name].read_bytes()
        return
    with zipfile.ZipFile(source.parent) as archive:
        for name in sorted(archive.namelist()):
            yield name.partition("/")[2], archive.read(name)

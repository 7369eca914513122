"""This package as files: the zip that workers get, and the digest of the code that results depend on. And
what workers need beside it, packed for `--archives`:

    python -m roamcast.lab.spark.package environment.tar.gz

That is the packages that runs use, in the versions that are installed here, and a `bin/python` that runs the
worker's own interpreter of this version with them. Without PySpark, which Spark brings along, and without
what only compilers and tests read.
"""

import atexit
import gzip
import hashlib
import re
import shutil
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from functools import cache
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path, PurePosixPath

import roamcast
from roamcast.errors import InputError, RoamcastError
from roamcast.lab.storage import Storage

# What no run loads (`tests/lab/sweep/test_mixture.py` looks): a change here changes no result.
BESIDE_RUNS = (
    *("cli/", "client/", "daemon/", "gateway/", "pages/", "testing/"),
    *(f"lab/{room}" for room in ("groups/", "league/", "live/", "notebook.py", "play/", "recordings/")),
    *("lab/report/", "lab/why/"),
)

PACKAGES = ("cryptography", "lxml", "msgspec", "numpy", "pandas", "pyarrow", "scipy", "sqlglot")
LEFT_OUT = frozenset({"..", "__pycache__", "include", "tests"})
LEFT_OUT_ENDS = frozenset({".a", ".h", ".hpp", ".pxd", ".pyi", ".pyx"})
PYTHON = """#!/bin/sh
PYTHONPATH="$(dirname "$0")/../site:$PYTHONPATH" exec python{}.{} "$@"
"""


@cache
def code_digest() -> str:
    """The digest of the code of this process that a run's results depend on."""
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
    """The package's files, sorted by name: of a folder, or of the zip that a worker was sent."""
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


# What workers need beside this package.


def pack(target: str) -> int:
    """Write the archive, whole or not at all; its octets. Equal packages give equal octets."""
    folder, name = Storage.of_file(target)
    with tempfile.TemporaryDirectory(prefix="roamcast-") as work:
        whole, python = Path(work) / name, Path(work) / "python"
        python.write_text(PYTHON.format(*sys.version_info[:2]))
        with (
            whole.open("wb") as opened,
            gzip.GzipFile("", "wb", 6, opened, mtime=0) as packed,
            tarfile.open(fileobj=packed, mode="w", dereference=True) as archive,
        ):
            for file, path in [("bin/python", python), *sorted(_needed_files())]:
                archive.add(path, file, filter=_without_owner)
        size = whole.stat().st_size
        folder.place(whole, name)
    return size


def _without_owner(member: tarfile.TarInfo) -> tarfile.TarInfo:
    return member.replace(mtime=0, mode=0o755, uid=0, gid=0, uname="", gname="", deep=False)


def _needed_files() -> Iterator[tuple[str, Path]]:
    for package in with_needed():
        for file in package.files or ():
            found = PurePosixPath(file)
            if not LEFT_OUT & set(found.parts) and found.suffix not in LEFT_OUT_ENDS:
                yield f"site/{found}", Path(str(package.locate_file(file)))


def with_needed() -> list[Distribution]:
    """The packages and all that they need."""
    found: dict[str, Distribution] = {}
    waiting = list(PACKAGES)
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        try:
            found[name] = distribution(name)
        except PackageNotFoundError:
            if name in PACKAGES:
                raise InputError(
                    name, "is not installed; allowed: an environment with roamcast[lab]"
                ) from None
            continue  # needed on other machines only
        needed = [text for text in found[name].requires or () if "extra ==" not in text]
        waiting += [re.split(r"[^\w.-]", text)[0].lower() for text in needed]
    return list(found.values())


def main(arguments: list[str]) -> int:
    try:
        if len(arguments) != 1 or not arguments[0].endswith(".tar.gz"):
            raise InputError("package", "takes one argument; allowed: the name of a file, ….tar.gz")
        size = pack(arguments[0])
    except (RoamcastError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    sys.stdout.write(f"{arguments[0]}: {size / 1e6:.0f} MB\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

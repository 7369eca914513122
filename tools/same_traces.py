"""Do two versions of the code give the same traces, byte for byte?

    python tools/same_traces.py REVISION|FOLDER [--jobs 2] [--scenario FILE]… [--strategy NAME]…

Every scenario below `examples/` is run by the command line under every strategy, once with the sources of
this working tree and once with those of a git revision (checked out beside it, removed afterwards) or of a
folder that holds the package, such as an unpacked wheel. All files of the two traces are compared, `run.json`
too; a run that is refused must be refused with the same words. Both versions use this Python environment.
Exit code 1 if anything differs.
"""

import argparse
import hashlib
import itertools
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
STRATEGIES = ("chapar", "epidemic", "flooding", "odmrp", "opportunistic", "tree")
SECONDS_MAX = 900.0


class Version(NamedTuple):
    tree: Path  # its scenario files: a changed example counts as a difference
    sources: Path  # the folder that holds the package


class Case(NamedTuple):
    scenario: Path  # relative to the tree
    strategy: str

    def __str__(self) -> str:
        return f"{self.scenario} {self.strategy}"


def main() -> int:
    arguments = parsed()
    with other_version(arguments.revision) as before, ThreadPoolExecutor(arguments.jobs) as pool:
        chosen = arguments.scenario or [file for file in scenarios() if (before.tree / file).exists()]
        cases = [Case(*case) for case in itertools.product(chosen, arguments.strategy)]
        here = Version(ROOT, ROOT / "src")
        outcomes = pool.map(lambda case: (case, digest(before, case), digest(here, case)), cases)
        differing = 0
        for case, old, new in outcomes:
            differing += old != new
            print(f"{'same   ' if old == new else 'DIFFERS'} {new[:16]} {case}", flush=True)
            if old != new and not (is_digest(old) and is_digest(new)):
                print(f"        before: {old}\n        now:    {new}")
    print(f"{len(cases) - differing} of {len(cases)} are the same as in {arguments.revision}")
    return 1 if differing else 0


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("revision", help="what to compare with, e.g. HEAD~1; or a folder with the package")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--scenario", type=Path, action="append", help="default: all below examples/")
    parser.add_argument("--strategy", nargs="+", default=STRATEGIES)
    return parser.parse_args()


def scenarios() -> list[Path]:
    """The scenarios of this tree, without experiment files."""
    files = sorted((ROOT / "examples").rglob("*.toml"))
    return [file.relative_to(ROOT) for file in files if "[scenario]" in file.read_text()]


@contextmanager
def other_version(revision: str) -> Iterator[Version]:
    if (Path(revision) / "roamcast").is_dir():
        yield Version(ROOT, Path(revision).resolve())
        return
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "before"
        git = ["git", "-C", str(ROOT), "worktree"]
        subprocess.run([*git, "add", "--quiet", "--detach", str(tree), revision], check=True)
        try:
            yield Version(tree, tree / "src")
        finally:
            subprocess.run([*git, "remove", "--force", str(tree)], check=True)


def digest(version: Version, case: Case) -> str:
    """The digest of all files of the run's trace; the error message if there is no trace."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "trace"
        command = [sys.executable, "-m", "roamcast", "simulate", str(case.scenario), "--out", str(out)]
        ended = subprocess.run(
            [*command, "--set", f"strategy.name={case.strategy}"],
            cwd=version.tree,
            env={**os.environ, "PYTHONPATH": str(version.sources)},
            capture_output=True,
            text=True,
            timeout=SECONDS_MAX,
        )
        if ended.returncode:
            return ended.stderr.strip().splitlines()[-1]
        seen = hashlib.sha256()
        for file in sorted(out.iterdir()):
            seen.update(file.name.encode() + b"\0" + hashlib.sha256(file.read_bytes()).digest())
        return seen.hexdigest()


def is_digest(text: str) -> bool:
    return len(text) == 64 and all(character in "0123456789abcdef" for character in text)


if __name__ == "__main__":
    sys.exit(main())

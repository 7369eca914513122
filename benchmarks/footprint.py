"""What an installation costs a device: octets, packages, processor seconds, memory.

    python benchmarks/footprint.py [TREE] [--extra NAME] [--runs N] [--json]

Builds the wheel of a source tree (default: this one), installs it into an empty environment and measures
there: the installed packages without pip and setuptools; processor seconds (user and system, the least of N
runs) of `roamcast --help`, of `roamcast publish` to a running node and of a node until its socket is open;
the memory of that node after some idle seconds. Another version is measured from its own tree:

    git worktree add /tmp/before REVISION && python benchmarks/footprint.py /tmp/before

Exits 1 when a goal is missed. There are goals only for an installation without extras.
"""

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import series

ROOT = Path(__file__).parents[1]
IDLE_SECONDS = 5.0
START_SECONDS_MAX = 60.0
GOALS = {"installed_mb": 45.0, "node_idle_mb": 45.0, "publish_s": 0.25, "help_s": 0.3}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tree", nargs="?", type=Path, default=ROOT)
    parser.add_argument("--extra", help="install the wheel with this extra, e.g. lab")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = measured(options.tree, Path(folder), options.extra, options.runs)
    for name in ("installed_mb", "node_idle_mb"):
        series.give(name, found[name])
    missed = [name for name, goal in GOALS.items() if options.extra is None and found[name] > goal]
    if options.json:
        print(json.dumps(found))
    else:
        for name, value in found.items():
            goal = f"goal {GOALS[name]:g} or less" if options.extra is None and name in GOALS else ""
            print(f"{name:<16} {value:>8g}  {goal}")
    for name in missed:
        print(f"footprint: {name} is {found[name]:g}; the goal is {GOALS[name]:g} or less", file=sys.stderr)
    return 1 if missed else 0


def measured(tree: Path, folder: Path, extra: str | None, runs: int) -> dict[str, float]:
    environment = installed(tree, folder, extra)
    packages = next((environment / "lib").glob("python3*/site-packages"))
    kept = [each for each in packages.iterdir() if not each.name.startswith(("pip", "setuptools"))]
    octets = sum(file.stat().st_size for each in kept for file in (each, *each.rglob("*")) if file.is_file())
    roamcast = environment / "bin" / "roamcast"
    call(roamcast, "node", "--init", folder / "node.toml", "--interface", "lo")
    config, socket = folder / "node.toml", folder / "node.sock"
    starts = []
    for _ in range(runs):
        with Started(roamcast, config, socket) as node:
            starts.append(node.processor_seconds())
    with Started(roamcast, config, socket) as node:
        time.sleep(IDLE_SECONDS)
        idle = node.resident()
        publish = least(runs, roamcast, "publish", "--topic", "a", "--payload", "b", "--socket", socket)
    return {
        "packages": sum(each.suffix == ".dist-info" for each in kept),
        "installed_mb": round(octets / 1e6, 1),
        "help_s": least(runs, roamcast, "--help"),
        "publish_s": publish,
        "node_start_s": round(min(starts), 2),
        "node_idle_mb": round(idle / 1e6, 1),
    }


def installed(tree: Path, folder: Path, extra: str | None) -> Path:
    source = folder / "source"  # a copy: building leaves files beside the sources
    source.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(tree / name, source / name)
    shutil.copytree(tree / "src", source / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    call(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, source)
    (wheel,) = folder.glob("roamcast-*.whl")
    environment = folder / "environment"
    call(sys.executable, "-m", "venv", environment)
    wanted = str(wheel) if extra is None else f"{wheel}[{extra}]"
    call(environment / "bin" / "python", "-m", "pip", "install", "--quiet", wanted)
    return environment


class Started:
    """A node that runs until the block ends."""

    def __init__(self, roamcast: Path, config: Path, socket: Path) -> None:
        self._command = [str(roamcast), "node", str(config)]
        self._socket = socket

    def __enter__(self) -> "Started":
        self._process = subprocess.Popen(self._command, env=clean(), stderr=subprocess.DEVNULL)
        ends_at = time.monotonic() + START_SECONDS_MAX
        while not self._socket.exists():
            assert time.monotonic() < ends_at and self._process.poll() is None, "the node does not start"
            time.sleep(0.005)
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait()

    def processor_seconds(self) -> float:
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def resident(self) -> int:
        """Octets."""
        pages = int(Path(f"/proc/{self._process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")


def least(runs: int, *command: str | Path) -> float:
    """Processor seconds of a command, the least of several runs."""
    seconds = []
    for _ in range(runs):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        call(*command)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds.append(after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime)
    return round(min(seconds), 3)


def call(*command: str | Path) -> None:
    subprocess.run(command, env=clean(), check=True, stdout=subprocess.DEVNULL)


def clean() -> dict[str, str]:
    """The environment without the sources of this tree on the path."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}


if __name__ == "__main__":
    sys.exit(main())

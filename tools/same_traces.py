"""Does this working tree still give the same traces, byte for byte? The net to run before and after a move.

    python tools/same_traces.py REVISION|FOLDER [--only WORD…] [--jobs 2]    compare with another version
    python tools/same_traces.py --record FILE [--sources FOLDER]             note the digests of this tree
    python tools/same_traces.py --against FILE [--only WORD…]                compare with what was noted
    python tools/same_traces.py --show CASE [--sources FOLDER]               all records of a case, for `diff`

A case is a scenario with settings; `tools/net/*.toml` has them all, and says where a run is shorter than its
original. Names begin with the strategy, so `--only tree` plays the cases of the tree, `--only tree/original
league` those whose name contains one of the two. Compared are all records of the trace, in order and with
all fields, the octets of every frame, and the metrics. A case that is refused must be refused with the same
words. The other version is a git revision (checked out beside this tree, removed afterwards) or a folder
that holds the package, such as an unpacked wheel; both are played with this tree's cases and this Python
environment. Exit code 1 if anything differs.

A worker process plays many cases, so it imports only once. It is this same file, with `PYTHONPATH` at the
version it plays.
"""

import argparse
import hashlib
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
import tomllib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Self

ROOT = Path(__file__).resolve().parent.parent
NET = ROOT / "tools" / "net"
SECONDS_MAX = 300  # of one case; it takes a few

Digests = dict[str, str]
"""What a case gave: by table a digest, or by the word `refused` why it did not run."""


class Case(NamedTuple):
    name: str
    scenario: dict[str, Any]  # `file`, relative to the folder of the net, or the tables themselves
    settings: dict[str, Any]  # by dotted key

    def fingerprint(self) -> str:
        """Of what is played, so that a record of another case with this name is not compared with it."""
        return hashlib.sha256(json.dumps(self[1:], sort_keys=True).encode()).hexdigest()[:16]


def main() -> int:
    arguments = parsed()
    if arguments.worker:
        return work()
    cases = {
        case.name: case
        for case in all_cases()
        if not arguments.only or any(word in case.name for word in arguments.only)
    }
    if arguments.show:
        show(cases[arguments.show], arguments.sources)
        return 0
    with ExitStack() as stack:
        before = stack.enter_context(sources_of(arguments.revision)) if arguments.revision else None
        recorded = json.loads(arguments.against.read_text()) if arguments.against else None
        outcomes = played(list(cases.values()), arguments.sources, before, arguments.jobs)
        if arguments.record:
            return record(outcomes, arguments.record)
        return compare(outcomes, recorded)


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("revision", nargs="?", help="what to compare with, e.g. HEAD~1; or a folder")
    what.add_argument("--record", type=Path, metavar="FILE")
    what.add_argument("--against", type=Path, metavar="FILE")
    what.add_argument("--show", metavar="CASE")
    what.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--only", nargs="+", default=(), metavar="WORD", help="part of a case's name")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--sources", type=Path, default=ROOT / "src", help="the package that is judged")
    return parser.parse_args()


# The cases.


def all_cases() -> Iterator[Case]:
    for file in sorted(NET.glob("*.toml")):
        net = tomllib.loads(file.read_text())
        scenarios = net["scenarios"]
        for name, case in net["cases"].items():
            settings = {key: value for key, value in case.items() if key != "on"}
            for chosen in case.get("on", scenarios):
                scenario = scenarios[chosen]
                tables = {key: value for key, value in scenario.items() if key != "set"}
                yield Case(f"{name}/{chosen}", tables, {**scenario.get("set", {}), **settings})


# Both versions play.


class Worker:
    """A process that plays cases with the sources of one version."""

    def __init__(self, sources: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__, "--worker"],
            env={**os.environ, "PYTHONPATH": str(sources)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def play(self, case: Case) -> Digests:
        assert self._process.stdin is not None and self._process.stdout is not None
        print(json.dumps(case), file=self._process.stdin, flush=True)
        answer = self._process.stdout.readline()
        return json.loads(answer) if answer else {"refused": "the worker process died"}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


class Outcome(NamedTuple):
    case: Case
    before: Digests | None
    now: Digests
    seconds: float


def played(cases: list[Case], sources: Path, before: Path | None, jobs: int) -> Iterator[Outcome]:
    """In the order in which they end."""
    waiting, done = queue.SimpleQueue[Case](), queue.SimpleQueue[Outcome]()
    for case in cases:
        waiting.put(case)
    lock = threading.Lock()

    def play() -> None:
        with ExitStack() as stack:
            new = stack.enter_context(Worker(sources))
            old = stack.enter_context(Worker(before)) if before else None
            while True:
                with lock:
                    if waiting.empty():
                        return
                    case = waiting.get()
                began = time.monotonic()
                now = new.play(case)
                seconds = time.monotonic() - began
                done.put(Outcome(case, old.play(case) if old else None, now, seconds))

    with ThreadPoolExecutor(jobs) as pool:
        threads = [pool.submit(play) for _ in range(jobs)]
        for _ in cases:
            while True:
                try:
                    yield done.get(timeout=1)
                    break
                except queue.Empty:
                    for thread in threads:
                        if thread.done():
                            thread.result()


def record(outcomes: Iterator[Outcome], file: Path) -> int:
    digests = {}
    for outcome in outcomes:
        name = outcome.case.name
        digests[name] = {"case": outcome.case.fingerprint(), "digests": outcome.now}
        print(f"{outcome.seconds:5.1f} s {name} {outcome.now.get('refused', '')}", flush=True)
    file.write_text(json.dumps(digests, indent=1, sort_keys=True))
    return 0


def compare(outcomes: Iterator[Outcome], recorded: dict[str, Any] | None) -> int:
    count = differing = unknown = 0
    for case, before, now, seconds in outcomes:
        if recorded is not None:
            known = recorded.get(case.name, {})
            before = known.get("digests") if known.get("case") == case.fingerprint() else None
        count += 1
        word = "same"
        if before is None:
            word, unknown = "UNKNOWN", unknown + 1
        elif changed(before, now):
            word, differing = "DIFFERS", differing + 1
        print(f"{word:7} {seconds:5.1f} s {case.name}", flush=True)
        if word == "DIFFERS" and before is not None:
            print(f"        {differences(before, now)}")
    print(f"{count - differing - unknown} of {count} cases are the same, {differing} differ", end="")
    print(f", {unknown} are not recorded" if unknown else "")
    return 1 if differing or unknown else 0


def changed(before: Digests, now: Digests) -> list[str]:
    """The tables that differ."""
    return [name for name in {**before, **now} if before.get(name) != now.get(name)]


def differences(before: Digests, now: Digests) -> str:
    if "refused" in before or "refused" in now:
        return f"before: {before.get('refused', 'played')}\n        now:    {now.get('refused', 'played')}"
    return "in " + ", ".join(
        f"{name} ({before.get(name, '0').split()[0]} → {now.get(name, '0').split()[0]} rows)"
        for name in changed(before, now)
    )


@contextmanager
def sources_of(revision: str) -> Iterator[Path]:
    if (Path(revision) / "roamcast").is_dir():
        yield Path(revision).resolve()
        return
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "before"
        git = ["git", "-C", str(ROOT), "worktree"]
        subprocess.run([*git, "add", "--quiet", "--detach", str(tree), revision], check=True)
        try:
            yield tree / "src"
        finally:
            subprocess.run([*git, "remove", "--force", str(tree)], check=True)


def show(case: Case, sources: Path) -> None:
    if os.environ.get("PYTHONPATH") != str(sources):
        os.environ["PYTHONPATH"] = str(sources)
        os.execv(sys.executable, [sys.executable, *sys.argv])
    for line in play(case).lines():
        print(line)


# In the worker: what follows imports the version that is played.


def work() -> int:
    for line in sys.stdin:
        case = Case(*json.loads(line))
        signal.signal(signal.SIGALRM, too_long)
        signal.alarm(SECONDS_MAX)
        try:
            digests = play(case).digests()
        except Exception as error:
            digests = {"refused": f"{type(error).__name__}: {error}"}
        signal.alarm(0)
        print(json.dumps(digests), flush=True)
    return 0


def too_long(*_: object) -> None:
    raise TimeoutError(f"not done after {SECONDS_MAX} s")


class Played:
    """A case that was played: the records by table, the frames as they were handed to the radio."""

    def __init__(self, tables: dict[str, list[Any]], frames: list[Any], metrics: dict[str, Any]) -> None:
        self._tables = {**tables, "frames": frames, "metrics": list(metrics.items())}

    def digests(self) -> Digests:
        """By table the number of rows and a digest of them; none for an empty table."""
        return {
            name: f"{len(rows)} {hashlib.sha256(chr(10).join(map(repr, rows)).encode()).hexdigest()[:32]}"
            for name, rows in self._tables.items()
            if rows
        }

    def lines(self) -> Iterator[str]:
        return (f"{name} {row}" for name, rows in self._tables.items() for row in rows)


def play(case: Case) -> Played:
    from roamcast.lab.run.runs import measured, run_info
    from roamcast.runtime.sim import Simulation
    from roamcast.scenario.load import scenario_from

    file = case.scenario.get("file")
    if file:
        tables = tomllib.loads((NET / file).read_text())
        base = (NET / file).parent
    else:
        tables, base = case.scenario, NET
    scenario = scenario_from(tables, base=base, settings=list(case.settings.items()))
    simulation = Simulation(scenario)
    frames: list[Any] = []
    send = simulation.medium.send

    def noted(job: Any) -> None:
        frames.append((job.sender, job.channel.name, job.to, job.frame.payload))
        send(job)

    simulation.medium.send = noted  # type: ignore[method-assign]
    result = simulation.run()
    rows = {kind.TABLE: list(records) for kind, records in result.trace.records.items()}
    info = run_info(scenario, result.roles, runtime="sim", sim_events=result.sim_events, wall_s=0.0)
    return Played(rows, frames, measured(scenario, result.trace, info).metrics)


if __name__ == "__main__":
    sys.exit(main())

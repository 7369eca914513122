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
import importlib
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
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from random import Random
from typing import Any, NamedTuple, Self

ROOT = Path(__file__).resolve().parent.parent
NET = ROOT / "tools" / "net"
STEPS = "steps of the simulator"  # no part of the trace: fewer timers with the same effect are no difference
SECONDS_MAX = 600  # of one case by the clock; it takes a few

Digests = dict[str, str]
"""What a case gave: by table a digest, or by the word `refused` why it did not run."""


class Case(NamedTuple):
    name: str
    scenario: dict[str, Any]  # its tables; or its `file`; or a `driver`, a module, in the net's folder
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
    """Each file has scenarios, which may have cells, and cases: settings with which to play them."""
    for file in sorted(NET.glob("*.toml")):
        net = tomllib.loads(file.read_text())
        scenarios = net["scenarios"]
        for name, case in net.get("cases", {"": {}}).items():
            settings = {key: value for key, value in case.items() if key != "on"}
            for chosen in case.get("on", scenarios):
                scenario = made(scenarios[chosen])
                fixed = scenario.pop("set", {})
                for cell, varied in scenario.pop("cells", {"": {}}).items():
                    full_name = "/".join(part for part in (name, chosen, cell) if part)
                    yield Case(full_name, scenario, {**fixed, **varied, **settings})


def made(scenario: dict[str, Any]) -> dict[str, Any]:
    """A scenario of `made.py` as it is made; any other as it is."""
    if "made" not in scenario:
        return dict(scenario)
    sys.path.insert(0, str(NET))
    make = getattr(importlib.import_module("made"), scenario["made"])
    return {**make(**scenario.get("arguments", {})), "set": scenario.get("set", {})}


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

    def play(self, case: Case) -> tuple[Digests, float]:
        """The digests, and the processor time in seconds."""
        assert self._process.stdin is not None and self._process.stdout is not None
        print(json.dumps(case), file=self._process.stdin, flush=True)
        answer = self._process.stdout.readline()
        digests, seconds = json.loads(answer) if answer else ({"refused": "the worker process died"}, 0.0)
        return digests, seconds

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
                now, seconds = new.play(case)
                done.put(Outcome(case, old.play(case)[0] if old else None, now, seconds))

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
    found = {}
    for outcome in outcomes:
        name = outcome.case.name
        found[name] = {"case": outcome.case.fingerprint(), "digests": outcome.now}
        print(f"{outcome.seconds:5.1f} s {name} {outcome.now.get('refused', '')}", flush=True)
    file.write_text(json.dumps(found, indent=1, sort_keys=True))
    return 0


def compare(outcomes: Iterator[Outcome], recorded: dict[str, Any] | None) -> int:
    words = Counter[str]()
    for case, before, now, seconds in outcomes:
        if recorded is not None:
            known = recorded.get(case.name, {})
            before = known.get("digests") if known.get("case") == case.fingerprint() else None
        tables = [] if before is None else changed(before, now)
        if before is None:
            word = "UNKNOWN"
        elif tables:
            word = "steps" if tables == [STEPS] else "DIFFERS"
        else:
            word = "same"
        words[word] += 1
        print(f"{word:7} {seconds:5.1f} s {case.name}", flush=True)
        if before is not None and word == "DIFFERS":
            print(f"        {differences(before, now)}")
    print(f"{words['same']} of {words.total()} cases are the same, {words['DIFFERS']} differ", end="")
    print(f", {words['steps']} took other steps with the same traces" if words["steps"] else "", end="")
    print(f", {words['UNKNOWN']} are not recorded" if words["UNKNOWN"] else "")
    return 1 if words["DIFFERS"] or words["UNKNOWN"] else 0


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
    for name, rows in play(case).items():
        for row in rows:
            print(name, row)


# In the worker: what follows imports the version that is played.


def work() -> int:
    for line in sys.stdin:
        case = Case(*json.loads(line))
        signal.signal(signal.SIGALRM, too_long)
        signal.alarm(SECONDS_MAX)
        began = time.process_time()
        try:
            answer = digests(play(case))
        except Exception as error:
            answer = {"refused": f"{type(error).__name__}: {error}"}
        signal.alarm(0)
        print(json.dumps((answer, time.process_time() - began)), flush=True)
    return 0


def too_long(*_: object) -> None:
    raise TimeoutError(f"not done after {SECONDS_MAX} s")


Tables = dict[str, list[Any]]
"""What was played: the records by table, the frames as they were handed to the radio, the metrics."""


def digests(tables: Tables) -> Digests:
    """By table the number of rows and a digest of them; none for an empty table."""
    return {
        name: f"{len(rows)} {hashlib.sha256(chr(10).join(map(repr, rows)).encode()).hexdigest()[:32]}"
        for name, rows in tables.items()
        if rows
    }


def play(case: Case) -> Tables:
    if "driver" in case.scenario:
        sys.path.insert(0, str(NET))
        driver = importlib.import_module(case.scenario["driver"])
        return driver.play(case.settings)  # type: ignore[no-any-return]
    settings = dict(case.settings)
    trouble = {key: settings.pop(key) for key in case.settings if key.startswith("net.")}
    with watched_simulations(trouble) as tables:
        metrics = simulation(case.scenario, settings)
    del metrics["wall_s"]
    return {**tables, STEPS: [metrics.pop("sim_events")], "metrics": sorted(metrics.items())}


def simulation(tables: dict[str, Any], settings: dict[str, Any]) -> dict[str, Any]:
    from roamcast.lab.run.runs import simulate
    from roamcast.scenario.load import scenario_from

    base = NET
    if "file" in tables:
        file = NET / tables["file"]
        tables, base = tomllib.loads(file.read_text()), file.parent
    return simulate(scenario_from(tables, base=base, settings=list(settings.items()))).metrics


@contextmanager
def watched_simulations(trouble: dict[str, Any]) -> Iterator[Tables]:
    """The records and frames of every simulation that is run inside, with the trouble that it gets."""
    from roamcast.runtime.sim.simulation import Simulation, SimulationResult

    tables: Tables = {}
    run = Simulation.run

    def watched(self: Simulation, *arguments: Any) -> SimulationResult:
        send = self.medium.send
        frames: list[Any] = tables.setdefault("frames", [])
        sent: list[Any] = []  # as `garbage` takes them

        def noted(job: Any) -> None:
            frames.append((job.sender, job.channel.name, job.to, job.frame.payload))
            sent.append(job)
            send(job)

        self.medium.send = noted  # type: ignore[method-assign]
        if trouble.get("net.garbage"):
            make_garbage(self, sent)
        for node in trouble.get("net.stop", ()):
            self.engine.at(30_000_000, lambda number: self.nodes[number].stop(), node)  # type: ignore[union-attr]
        result = run(self, *arguments)
        for kind, records in result.trace.records.items():
            tables.setdefault(kind.TABLE, []).extend(records)
        return result

    Simulation.run = watched  # type: ignore[assignment, method-assign]
    try:
        yield tables
    finally:
        Simulation.run = run  # type: ignore[method-assign]


def make_garbage(simulation: Any, sent: list[Any]) -> None:
    """Twice a second somebody receives a frame of late that was damaged on its way."""
    random = Random(1)

    def receive(_: None) -> None:
        simulation.engine.at(simulation.engine.now + 500_000, receive)
        job = random.choice(sent[-30:]) if sent else None
        receiver = random.randrange(len(simulation.nodes))
        if job is None or receiver == job.sender or not job.frame.payload:
            return
        damaged = bytearray(job.frame.payload)
        where = random.randrange(len(damaged))
        if random.random() < 0.3:
            del damaged[where:]
        else:
            damaged[where] ^= 1 << random.randrange(8)
        take = simulation.medium.receivers[job.channel][receiver]
        if take is not None:
            take(job.sender, bytes(damaged))

    simulation.engine.at(3_000_000, receive)


if __name__ == "__main__":
    sys.exit(main())

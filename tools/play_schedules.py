"""Play many random schedules of handoffs, and go on where an earlier call was stopped.

    python tools/play_schedules.py FIRST COUNT [--kinds strict,loose,…] [--jobs 2] [--out FILE]

Each seed from FIRST on is played once as each kind (`tests/strategy/opportunistic/schedules.py`); what came
of it is one JSON line of FILE. Seeds that FILE has are not played again, so it can be stopped at any moment.
The sums of all of FILE are printed at the end. Exit code 1 if any schedule has problems.
"""

import argparse
import json
import multiprocessing
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
KINDS: dict[str, dict[str, Any]] = {
    "strict": {},
    "defaults": {"defaults": True},
    "loose": {"handoff": "loose"},
    "adaptors": {"adapt": True},
    "many": {"many": True},
    "paper": {"paper": True},
}
SHOWN_EVERY = 25

Case = tuple[str, int]


def main() -> int:
    arguments = parsed()
    played = read(arguments.out)
    seeds = range(arguments.first, arguments.first + arguments.count)
    cases = [(kind, seed) for seed in seeds for kind in arguments.kinds.split(",")]
    left = [case for case in cases if case not in {(one["kind"], one["seed"]) for one in played}]
    print(f"{len(cases) - len(left)} of {len(cases)} were played before", flush=True)
    with multiprocessing.Pool(arguments.jobs) as pool, arguments.out.open("a", encoding="utf-8") as out:
        for number, result in enumerate(pool.imap_unordered(played_once, left), start=1):
            out.write(json.dumps(result) + "\n")
            out.flush()
            played.append(result)
            for problem in result["problems"]:
                print(f"{result['kind']} {result['seed']}: {problem}", flush=True)
            if number % SHOWN_EVERY == 0:
                print(f"{number} of {len(left)}", flush=True)
    for line in sums(played):
        print(line)
    return 1 if any(one["problems"] for one in played) else 0


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("first", type=int)
    parser.add_argument("count", type=int)
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--out", type=Path, default=Path("schedules.jsonl"))
    return parser.parse_args()


def played_once(case: Case) -> dict[str, Any]:
    sys.path.insert(0, str(ROOT))
    from tests.strategy.opportunistic.schedules import play

    kind, seed = case
    outcome = play(seed, **KINDS[kind])
    return {
        "kind": kind,
        "seed": seed,
        "problems": outcome.problems,
        "handoffs": sum(outcome.outcomes.values()),
        "deliveries": outcome.deliveries,
        "late": outcome.late,
    }


def read(file: Path) -> list[dict[str, Any]]:
    """What stands there; a line that was cut off does not count."""
    found = []
    for line in file.read_text(encoding="utf-8").splitlines() if file.exists() else ():
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return found


def sums(played: list[dict[str, Any]]) -> Iterator[str]:
    for kind in KINDS:
        theirs = [one for one in played if one["kind"] == kind]
        bad = sorted(one["seed"] for one in theirs if one["problems"])
        handoffs, deliveries = (sum(one[name] for one in theirs) for name in ("handoffs", "deliveries"))
        yield f"{kind}: {len(theirs)} schedules, {handoffs} handoffs, {deliveries} deliveries, bad: {bad}"


if __name__ == "__main__":
    sys.exit(main())

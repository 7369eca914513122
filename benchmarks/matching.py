"""How much faster is the matching index than trying every filter in turn?

`python benchmarks/matching.py [--subscriptions N ...] [--json]` prints events per second of both,
measured in the same run on the same events, after checking that both give the same answers. It exits
with 1 if the index is less than 50 times as fast with 100,000 mixed subscriptions.
"""

import argparse
import gc
import json
import sys
import time
import tracemalloc
from collections.abc import Callable
from random import Random
from typing import Any, TypeAlias

from roamcast.event import Event
from roamcast.filter.expression import And, Compare, Expression, OnTopic, Operator
from roamcast.filter.filter import Filter
from roamcast.filter.index import MatchingIndex

NAMED = [f"name_{number}" for number in range(10)]  # compared for equality
MEASURED = [f"measure_{number}" for number in range(10)]  # compared by < and >=
PREDICATES = 3
NAMES = 50  # values of a named attribute: texts for one half of them, whole numbers for the other
MEASURE_MAX = 1000.0
TOPIC_LEVELS = (20, 20, 20)  # names per level
RATIO_REQUIRED = 50.0
LOOP_SECONDS = 2.0  # processor time after which the plain loop takes no more events
INDEX_EVENTS = 300

Rule: TypeAlias = Callable[[Random], Expression]


def main() -> int:
    parser = argparse.ArgumentParser(description="Matching index against trying every filter.")
    parser.add_argument("--subscriptions", type=int, nargs="+", default=[1_000, 10_000, 100_000])
    parser.add_argument("--workload", nargs="+", choices=sorted(WORKLOADS), default=list(WORKLOADS))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="one JSON list on stdout, nothing else")
    arguments = parser.parse_args()
    rows = []
    for workload in arguments.workload:
        for count in arguments.subscriptions:
            rows.append(measure(workload, count, arguments.seed))
            if not arguments.json:
                print(as_text(rows[-1], heading=len(rows) == 1), flush=True)
    if arguments.json:
        print(json.dumps(rows, indent=1))
    required = [row for row in rows if row["workload"] == "mixed" and row["subscriptions"] == 100_000]
    return 1 if any(row["ratio"] < RATIO_REQUIRED for row in required) else 0


def measure(workload: str, count: int, seed: int) -> dict[str, Any]:
    random = Random(f"{workload} {count} {seed}")
    rule = WORKLOADS[workload]
    filters = [Filter(rule(random)) for _ in range(count)]
    events = [random_event(random) for _ in range(INDEX_EVENTS)]
    for filter in filters:
        filter.matches(events[0])  # the first call compiles

    gc.collect()
    tracemalloc.start()
    sized = built_index(filters)
    octets = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    del sized
    started = time.process_time()
    index = built_index(filters)
    build_s = time.process_time() - started

    tried, loop_s = 0, 0.0
    expected: list[list[int]] = []
    while tried < len(events) and loop_s < LOOP_SECONDS:
        started = time.process_time()
        expected.append([key for key, filter in enumerate(filters) if filter.matches(events[tried])])
        loop_s += time.process_time() - started
        tried += 1
    index.match(events[0])  # the first call touches memory for the first time
    started = time.process_time()
    answers = [index.match(event) for event in events]
    index_s = time.process_time() - started
    assert answers[:tried] == expected, f"index and loop differ ({workload}, {count}, seed {seed})"
    loop_rate, index_rate = tried / loop_s, len(events) / index_s
    return {
        "workload": workload,
        "subscriptions": count,
        "loop_events_per_s": round(loop_rate, 1),
        "index_events_per_s": round(index_rate, 1),
        "ratio": round(index_rate / loop_rate, 1),
        "build_s": round(build_s, 3),
        "octets_per_subscription": round(octets / count),
        "matches_mean": round(sum(map(len, answers)) / len(answers), 2),
    }


def built_index(filters: list[Filter]) -> MatchingIndex[int]:
    index: MatchingIndex[int] = MatchingIndex()
    for key, filter in enumerate(filters):
        index.add(key, filter)
    return index


def random_event(random: Random) -> Event:
    attributes: dict[str, bool | int | float | str | None] = {}
    attributes |= {attribute: random_name(random, attribute) for attribute in NAMED}
    attributes |= {attribute: random_measure(random) for attribute in MEASURED}
    return Event(publisher=1, sequence=1, attributes=attributes, topic=random_topic(random))


def mixed(random: Random) -> Expression:
    return predicates(random, NAMED + MEASURED)


def ranges(random: Random) -> Expression:
    return predicates(random, MEASURED)


def equalities(random: Random) -> Expression:
    return predicates(random, NAMED)


def topics(random: Random) -> Expression:
    """One in three with a `+`, one in ten ending in `#`."""
    levels = random_topic(random).split("/")
    if random.random() < 1 / 3:
        levels[random.randrange(len(levels))] = "+"
    if random.random() < 1 / 10:
        levels = [*levels[: random.randint(1, len(levels))], "#"]
    return OnTopic("/".join(levels))


def topics_and_ranges(random: Random) -> Expression:
    return And((topics(random), predicate(random, random.choice(MEASURED))))


WORKLOADS: dict[str, Rule] = {
    "mixed": mixed,
    "range": ranges,
    "equality": equalities,
    "topic": topics,
    "topic+range": topics_and_ranges,
}


def predicates(random: Random, attributes: list[str]) -> Expression:
    chosen = random.sample(attributes, PREDICATES)
    return And(tuple(predicate(random, attribute) for attribute in chosen))


def predicate(random: Random, attribute: str) -> Expression:
    """An equality with any name, or a range that begins or ends at any measure."""
    if attribute in NAMED:
        return Compare(attribute, Operator.EQUAL, random_name(random, attribute))
    operator = random.choice((Operator.LESS, Operator.GREATER_OR_EQUAL))
    return Compare(attribute, operator, random_measure(random))


def random_name(random: Random, attribute: str) -> int | str:
    name = random.randrange(NAMES)
    return f"name {name}" if NAMED.index(attribute) % 2 else name


def random_measure(random: Random) -> float:
    return round(random.uniform(0, MEASURE_MAX), 3)


def random_topic(random: Random) -> str:
    return "/".join(f"{level}-{random.randrange(names)}" for level, names in enumerate(TOPIC_LEVELS))


def as_text(row: dict[str, Any], heading: bool) -> str:
    line = (
        f"{row['workload']:12} {row['subscriptions']:>13,} {row['loop_events_per_s']:>12,.0f} "
        f"{row['index_events_per_s']:>12,.0f} {row['ratio']:>9,.1f} {row['build_s']:>8.2f} "
        f"{row['octets_per_subscription']:>11,} {row['matches_mean']:>10,.1f}"
    )
    names = (
        f"{'workload':12} {'subscriptions':>13} {'loop ev/s':>12} {'index ev/s':>12} {'ratio':>9} "
        f"{'build s':>8} {'octets/sub':>11} {'matches/ev':>10}"
    )
    return f"{names}\n{line}" if heading else line


if __name__ == "__main__":
    sys.exit(main())

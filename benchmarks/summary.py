"""Pub/Sub ODMRP: how many checks of an event digest against a summary in a second, on one core?

    python benchmarks/summary.py [--runs N] [--json]

Subscriptions and events are those of a golf forum: players, holes, scores, ranks. Each row is a number of
brokers with as many subscriptions each. Checks per second are digests times summaries over processor time,
best of N rounds: `table`, one digest against all summaries at once (`SummaryTable`); `digests`, one summary
against all digests at once (`DigestTable`); `plain`, one pair at a time. All three must give the same
answers, and none may miss an event that a filter matches. Also printed: octets of a summary and of a digest,
microseconds to make them, and the share of unwanted events that a summary claims. Exits 1 when the table does
fewer than 200,000 checks per second in any row; a busy machine needs more rounds, not a softer limit.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable
from random import Random
from typing import Any

import series
from roamcast.event import Event, Value
from roamcast.filter import Filter
from roamcast.strategy.odmrp.summary.lookup import DigestTable
from roamcast.strategy.odmrp.summary.summary import EventDigest, Summary, SummaryTable

ROWS = [(10, 1), (50, 1), (50, 5), (20, 30), (1000, 5), (10_000, 1)]
EVENTS = 200
PLAIN_PAIRS_MAX = 20_000
REQUIRED_PER_S = 200_000
PLAYERS = [f"player {number}" for number in range(100)]


def main() -> int:
    parser = argparse.ArgumentParser(description="Digests against summaries.")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--json", action="store_true", help="one JSON list on stdout, nothing else")
    arguments = parser.parse_args()
    rows = []
    for brokers, subscriptions in ROWS:
        row = measure(brokers, subscriptions, arguments.runs)
        rows.append(row)
        gain = row["table_per_s"] / row["plain_per_s"]
        series.give(f"{brokers} brokers, table over plain", gain, better="higher")
        if not arguments.json:
            print(as_text(rows[-1], heading=len(rows) == 1), flush=True)
    if arguments.json:
        print(json.dumps(rows, indent=1))
    return 1 if any(row["table_per_s"] < REQUIRED_PER_S for row in rows) else 0


def measure(brokers: int, subscriptions: int, runs: int) -> dict[str, Any]:
    random = Random(f"{brokers} {subscriptions}")
    filters = [[golf_subscription(random) for _ in range(subscriptions)] for _ in range(brokers)]
    events = [golf_event(random) for _ in range(EVENTS)]
    summaries, build_s = timed(lambda: [Summary.of(wanted) for wanted in filters])
    digests, digest_s = timed(lambda: [EventDigest.of(event) for event in events])
    table: SummaryTable[int] = SummaryTable()
    for node, summary in enumerate(summaries):
        table.add(node, summary)
    together = DigestTable(digests)
    table.matching(digests[0])  # the first builds the table
    together.matching(summaries[0])

    found, table_s = best(lambda: [table.matching(digest) for digest in digests], runs)
    some = summaries[: max(PLAIN_PAIRS_MAX // EVENTS, 1)]
    by_summary, digests_s = best(lambda: [together.matching(summary) for summary in some], runs)
    plain, plain_s = best(lambda: [[each.matches(digest) for digest in digests] for each in some], runs)
    assert plain == [flags.tolist() for flags in by_summary]
    assert plain == [[node in hits for hits in map(set, found)] for node in range(len(some))]
    unwanted = claimed = 0
    for node, wanted in enumerate(filters[: len(some)]):
        for at, event in enumerate(events):
            if any(each.matches(event) for each in wanted):
                assert plain[node][at], "a false negative"
            else:
                unwanted += 1
                claimed += plain[node][at]
    return {
        "brokers": brokers,
        "subscriptions": subscriptions,
        "table_per_s": round(EVENTS * brokers / table_s),
        "digests_per_s": round(EVENTS * len(some) / digests_s),
        "plain_per_s": round(EVENTS * len(some) / plain_s),
        "summary_octets": round(sum(len(each.encode()) for each in summaries) / brokers),
        "digest_octets": round(sum(len(each.encode()) for each in digests) / EVENTS),
        "summary_us": round(build_s / brokers * 1e6),
        "digest_us": round(digest_s / EVENTS * 1e6, 1),
        "false_positives": round(claimed / unwanted, 5),
    }


def golf_subscription(random: Random) -> Filter:
    terms = []
    if random.random() < 0.8:
        chosen = random.sample(PLAYERS, random.choice([1, 1, 2, 3]))
        terms.append("player IN ({})".format(", ".join(f"'{player}'" for player in chosen)))
    if random.random() < 0.6:
        first = random.randint(1, 18)
        terms.append(f"hole BETWEEN {first} AND {random.randint(first, 18)}")
    if random.random() < 0.2:
        terms.append(f"holescore <= {random.randint(1, 4)}")
    if random.random() < 0.2 or not terms:
        terms.append(f"currentrank <= {random.randint(1, 20)}")
    return Filter.of_type("PGMFORUM") & Filter.sql(" AND ".join(terms))


def golf_event(random: Random) -> Event:
    attributes: dict[str, Value] = {
        "player": random.choice(PLAYERS),
        "hole": random.randint(1, 18),
        "holescore": random.randint(2, 7),
        "totalscore": random.randint(2, 90),
        "currentrank": random.randint(1, 100),
    }
    return Event(publisher=1, sequence=1, attributes=attributes, type="PGMFORUM")


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    started = time.process_time()
    result = work()
    return result, time.process_time() - started


def best(work: Callable[[], Any], runs: int) -> tuple[Any, float]:
    rounds = [timed(work) for _ in range(runs)]
    return rounds[0][0], min(seconds for _, seconds in rounds)


def as_text(row: dict[str, Any], heading: bool) -> str:
    widths = {name: max(len(name), 12) for name in row}
    lines = ["  ".join(f"{name:>{width}}" for name, width in widths.items())] if heading else []
    lines.append("  ".join(f"{row[name]:>{width},}" for name, width in widths.items()))
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())

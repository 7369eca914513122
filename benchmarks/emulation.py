"""Real nodes under controlled mobility: figures of the emulation, beside those that others published.

    python benchmarks/emulation.py [--part realtime,memorized,healing,killing,crowd,agreement] [--short]
        [--strategies flooding,tree,chapar,epidemic] [--published] [--seed N] [--json] [--out DIR]

Each run takes real time and needs the machine for itself; all parts together take about 22 minutes, with
`--short` about 10. An exclamation mark means that the machine was too slow: do not trust that run.
Exit code 1 if a goal was missed. `tree` and `chapar` run with their preset `prompt`, made for live nodes;
with `--published` they have the parameters of their papers.

realtime   walking, driving, and walking with every tenth frame lost, every strategy: delivery over the pairs
           that were connected when the event was published, duplicates, octets on the air per octet of
           delivered payload
memorized  the same with memorized events: share of what ideal store-and-carry reaches
healing    a line of five, cut in the middle and healed ten times: how soon each pair of an end and a node on
           the other side is served again, and whether events memorized meanwhile arrive; a ring with one
           link cut: how soon the other path is used
killing    SIGKILL of a random node every 5 s for 2 minutes: acknowledged memorized events lost, duplicates
crowd      40 nodes, each with one event per second: how late the ether was, 99th percentile
agreement  the scenarios of `realtime` in the simulator: how far apart the delivery ratios are, and whether
           the strategies come in the same order

The goals come from a zero-configuration data bus (Zenoh 1.10), measured on namespaces with walking and
driving schedules of the same kind: it delivered 87 % (walking) and 75 % (driving) of the connected pairs,
with all addresses configured 97 % and 94 %; it sent 1.9 to 4.6 and 2.6 to 6.1 octets per octet of payload,
with caching publishers 8 to 11; and it needed 6.5 s after a cut was healed. The acyclic-overlay work reports
82 % (walking) and 58 % (driving) of its packets delivered in the field.
"""

import argparse
import json
import math
import statistics
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from random import Random
from typing import Any

from roamcast.lab.run import runs
from roamcast.lab.run.runs import RunResult
from roamcast.lab.run.tables import AttainablePair, Expected, records
from roamcast.scenario import read_tables, scenario_from
from roamcast.scenario.load import Setting
from roamcast.trace import Delivered, Published
from roamcast.units import SECOND, Micros, NodeId, micros, seconds

EXAMPLES = Path(__file__).parent.parent / "examples" / "emulate"
STRATEGIES = ("flooding", "tree", "chapar", "epidemic")
MEMORIZING = ("chapar", "epidemic")
PROMPT = ("tree", "chapar")  # those with a preset for live nodes
MOBILITIES = ("walking", "driving")
LOSSY = "walking, 10 % loss"
LOSS = ("world.radio.loss", 0.1)
# Zenoh's with all addresses configured: 0.97, 0.94. Under loss: chosen by us.
GOAL_CONNECTED = {"walking": 0.999, "driving": 0.995, LOSSY: 0.98}
GOAL_OCTETS = {"walking": 1.3, "driving": 2.5, LOSSY: math.inf}  # Zenoh's lowest: 1.9, 2.6
# Those below are chosen by us.
GOAL_IDEAL = 0.95
GOAL_AGREEMENT = 0.05
GOAL_ROUND = 1.0  # seconds until the way round is used
GOAL_HEALING = 0.25  # seconds from a heal until a pair of nodes on its two sides is served, in the median
GOAL_HOP = 2.0  # milliseconds for a real-time event over one hop, in the median
GOAL_LATE: Micros = 20_000  # as much as a run may be late to be trusted

Row = dict[str, Any]


class Bench:
    def __init__(self, options: argparse.Namespace) -> None:
        self.short: bool = options.short
        self.seed: int | None = options.seed
        self.published: bool = options.published
        self.chosen: tuple[str, ...] | None = (
            tuple(options.strategies.split(",")) if options.strategies else None
        )
        self.out: Path | None = Path(options.out) if options.out else None
        self._emulated: dict[tuple[str, str], RunResult] = {}

    def strategies(self, usual: Sequence[str]) -> Sequence[str]:
        return self.chosen or usual

    def settings(self, mobility: str, strategy: str, duration: float) -> list[Setting]:
        return [("scenario.duration", duration), *self.strategy(strategy, mobility)]

    def strategy(self, name: str, mobility: str = "walking") -> list[Setting]:
        settings: list[Setting] = [("strategy.name", name)]
        if name in PROMPT and not self.published:
            settings.append(("strategy.options.preset", "prompt"))
        elif name == "tree":
            settings.append(("strategy.options.preset", mobility.partition(",")[0]))
        return settings

    def emulate(self, name: str, settings: Iterable[Setting], label: str) -> RunResult:
        result = runs.emulate(self.scenario(name, settings))
        if self.out is not None:
            result.write(self.out / label)
        return result

    def scenario(self, name: str, settings: Iterable[Setting]) -> Any:
        path = EXAMPLES / f"{name}.toml"
        seeded = [] if self.seed is None else [("scenario.seed", self.seed)]
        return scenario_from(read_tables(path), path.parent, [*settings, *seeded])

    # The parts.

    def realtime(self) -> list[Row]:
        rows = []
        for mobility in (*MOBILITIES, LOSSY):
            for strategy in self.strategies(STRATEGIES):
                result = self._realtime_run(mobility, strategy)
                metrics = result.metrics
                connected, octets = metrics["delivery_ratio_reachable"], metrics["air_bytes_ratio"]
                row = {
                    "scenario": mobility,
                    "strategy": strategy,
                    "connected": connected,
                    "of all": metrics["delivery_ratio"],
                    "duplicates": metrics["duplicates"],
                    "octets per octet": octets,
                    "latency p50 ms": _milliseconds(metrics["latency_p50"]),
                    "latency p95 ms": _milliseconds(metrics["latency_p95"]),
                    "connected p95 ms": _milliseconds(connected_latency(result)),
                    "play delay ms": _delay(result),
                }
                if (
                    strategy != "flooding"
                ):  # the baseline has no goals, and only the live default one for octets
                    row["goal"] = _met(
                        connected is not None and connected >= GOAL_CONNECTED[mobility],
                        strategy != "epidemic" or (octets is not None and octets < GOAL_OCTETS[mobility]),
                        metrics["duplicates"] == 0,
                    )
                rows.append(_shown(row))
        return rows

    def memorized(self) -> list[Row]:
        duration = 60.0 if self.short else 120.0
        rows = []
        for mobility in MOBILITIES:
            for strategy in self.strategies(MEMORIZING):
                settings = self.settings(mobility, strategy, duration)
                settings += [("workload.class", "memorized"), ("workload.lifetime", duration)]
                # No real node can carry an event that is published in the last instant; the limit can.
                settings.append(("workload.stop", duration - 10.0))
                result = self.emulate(mobility, settings, f"memorized-{mobility}-{strategy}")
                share, ceiling = _of_ideal(result)
                metrics = result.metrics
                row = {
                    "scenario": mobility,
                    "strategy": strategy,
                    "of ideal": share,
                    "of all": metrics["delivery_ratio"],
                    "ideal of all": ceiling,
                    "duplicates": metrics["duplicates"],
                    "octets per octet": metrics["air_bytes_ratio"],
                    "latency p50 ms": _milliseconds(metrics["latency_p50"]),
                    "play delay ms": _delay(result),
                }
                if strategy == "epidemic":
                    row["goal"] = _met(share is not None and share >= GOAL_IDEAL, metrics["duplicates"] == 0)
                rows.append(_shown(row))
        return rows

    def healing(self) -> list[Row]:
        rows = []
        for strategy in self.strategies(("epidemic",)):
            rows += [self._line(strategy), self._ring(strategy)]
        return rows

    def killing(self) -> list[Row]:
        return [self._killing(strategy) for strategy in self.strategies(("epidemic",))]

    def crowd(self) -> list[Row]:
        """At the density of `walking`."""
        settings: list[Setting] = [("world.nodes", 40), ("world.area", [240.0, 240.0])]
        settings += self.settings("walking", "epidemic", 30.0)
        result = self.emulate("walking", settings, "crowd")
        row = {
            "strategy": "epidemic",
            "connected": result.metrics["delivery_ratio_reachable"],
            "play delay ms": _delay(result),
            "goal": _met((result.info.play_delay or 0) <= GOAL_LATE),
        }
        return [_shown(row)]

    def agreement(self) -> list[Row]:
        rows = []
        for mobility in MOBILITIES:
            both: dict[str, tuple[float, float]] = {}
            for strategy in self.strategies(STRATEGIES):
                emulated = self._realtime_run(mobility, strategy)
                simulated = runs.simulate(
                    self.scenario(mobility, self._realtime_settings(mobility, strategy))
                )
                pair = simulated.metrics["delivery_ratio"], emulated.metrics["delivery_ratio"]
                assert pair[0] is not None and pair[1] is not None
                both[strategy] = pair[0], pair[1]
                row = {
                    "scenario": mobility,
                    "strategy": strategy,
                    "simulated": pair[0],
                    "emulated": pair[1],
                    "apart": abs(pair[0] - pair[1]),
                    "connected, simulated": simulated.metrics["delivery_ratio_reachable"],
                    "connected, emulated": emulated.metrics["delivery_ratio_reachable"],
                    "goal": _met(abs(pair[0] - pair[1]) <= GOAL_AGREEMENT),
                }
                rows.append(_shown(row))
            rows.append({"scenario": mobility, "strategy": "(order)", "goal": _met(same_order(both))})
        return rows

    # The runs.

    def _realtime_settings(self, mobility: str, strategy: str) -> list[Setting]:
        return self.settings(mobility, strategy, 30.0 if self.short else 70.0)

    def _realtime_run(self, mobility: str, strategy: str) -> RunResult:
        key = (mobility, strategy)
        if key not in self._emulated:
            settings = self._realtime_settings(mobility, strategy)
            place = mobility.partition(",")[0]
            if mobility == LOSSY:
                settings.append(LOSS)
            self._emulated[key] = self.emulate(place, settings, f"realtime-{mobility}-{strategy}")
        return self._emulated[key]

    def _line(self, strategy: str) -> Row:
        """Real-time events ten times a second from both ends; a memorized one per second beside them."""
        times = 3 if self.short else 10
        cuts = [5.0 + 6.0 * number for number in range(times)]
        heals = [cut + 3.0 for cut in cuts]
        faults = [{"at": at, "kind": "cut", "links": [[2, 3]]} for at in cuts]
        faults += [{"at": at, "kind": "heal", "links": [[2, 3]]} for at in heals]
        duration = cuts[-1] + 13.0
        last = round(duration - 6.0)
        publications: list[dict[str, Any]] = [
            {"t": number / 10 + end / 100, "node": end, "class": "realtime"}
            for end in (0, 4)
            for number in range(20, last * 10)
        ]
        publications += [
            {"t": number + 0.45 + end / 100, "node": end, "class": "memorized", "lifetime": duration}
            for end in (0, 4)
            for number in range(2, last)
        ]
        settings: list[Setting] = [
            ("scenario.duration", duration),
            *self.strategy(strategy),
            ("fault", faults),
            ("workload", {"size": 200, "publications": publications}),
        ]
        result = self.emulate("line", settings, f"line-{strategy}")
        pairs = ((0, 3), (0, 4), (4, 0), (4, 1), (4, 2))
        crossed = [crossing(result, micros(at), *pair) for at in heals for pair in pairs]
        known = [after for after in crossed if after is not None]
        missing = memorized_missing(result)
        median = statistics.median(known) if known else None
        return _shown(
            {
                "scenario": f"line, {times} cuts",
                "strategy": strategy,
                "median pair s": median,
                "worst s": max(known, default=None),
                "never": len(crossed) - len(known),
                "memorized": len(memorized(result)),
                "memorized pairs missing": missing,
                "duplicates": result.metrics["duplicates"],
                "play delay ms": _delay(result),
                "goal": _met(median is not None and median < GOAL_HEALING, missing == 0, known == crossed),
            }
        )

    def _ring(self, strategy: str) -> Row:
        cut = 10.0
        result = self.emulate("ring", self.strategy(strategy), f"ring-{strategy}")
        after = crossing(result, micros(cut), 0, 1)
        return _shown(
            {
                "scenario": "ring, one link cut",
                "strategy": strategy,
                "way round after s": after,
                "one hop ms": _milliseconds(hop := one_hop(result)),
                "duplicates": result.metrics["duplicates"],
                "play delay ms": _delay(result),
                "goal": _met(after is not None and after < GOAL_ROUND, hop * 1000 <= GOAL_HOP),
            }
        )

    def _killing(self, strategy: str) -> Row:
        kills = 6 if self.short else 24
        random = Random(self.seed or 1)
        faults: list[dict[str, Any]] = []
        for number in range(kills):
            at, node = 5.0 + 5.0 * number, random.randrange(10)
            faults.append({"at": at, "kind": "crash", "nodes": [node]})
            faults.append({"at": at + 2.5, "kind": "restart", "nodes": [node]})
        duration = 5.0 + 5.0 * kills + 20.0
        places = [[30.0 * (node % 5), 30.0 * (node // 5)] for node in range(10)]
        settings: list[Setting] = [
            ("scenario.name", "killing"),
            ("scenario.duration", duration),
            ("scenario.warmup", 0.0),
            *self.strategy(strategy),
            ("world.mobility", {"model": "static", "positions": places}),
            ("workload.class", "memorized"),
            ("workload.lifetime", duration),
            ("workload.stop", duration - 20.0),
            ("fault", faults),
        ]
        result = self.emulate("walking", settings, f"killing-{strategy}")
        missing = memorized_missing(result)
        metrics = result.metrics
        return _shown(
            {
                "scenario": f"{kills} kills, 2 x 5 grid",
                "strategy": strategy,
                "acknowledged": len(memorized(result)),
                "pairs missing": missing,
                "duplicates": metrics["duplicates"],
                "latency p50 ms": _milliseconds(metrics["latency_p50"]),
                "latency p95 ms": _milliseconds(metrics["latency_p95"]),
                "play delay ms": _delay(result),
                "goal": _met(missing == 0, metrics["duplicates"] == 0),
            }
        )


def crossing(result: RunResult, since: Micros, publisher: NodeId, node: NodeId) -> float | None:
    """Seconds from an instant until the node has an event that the publisher published after it."""
    published = {
        event.sequence
        for event in records(result.tables, Published)
        if event.publisher == publisher and since <= event.t < since + 3 * SECOND
    }
    arrivals = [
        delivery.t - since
        for delivery in records(result.tables, Delivered)
        if delivery.publisher == publisher and delivery.node == node and delivery.sequence in published
    ]
    return seconds(min(arrivals)) if arrivals else None


def connected_latency(result: RunResult) -> float | None:
    """Of the pairs that were connected when the event was published: the 95th percentile, in seconds."""
    published = {(event.publisher, event.sequence): event.t for event in records(result.tables, Published)}
    pairs = {
        (pair.publisher, pair.sequence, pair.node)
        for pair in records(result.tables, Expected)
        if pair.reachable
    }
    latencies = sorted(
        delivery.t - published[delivery.publisher, delivery.sequence]
        for delivery in records(result.tables, Delivered)
        if (delivery.publisher, delivery.sequence, delivery.node) in pairs
    )
    return seconds(latencies[len(latencies) * 95 // 100]) if latencies else None


def one_hop(result: RunResult) -> float:
    """The median of seconds from publication to delivery over one radio hop."""
    published = {(event.publisher, event.sequence): event.t for event in records(result.tables, Published)}
    return statistics.median(
        seconds(delivery.t - published[delivery.publisher, delivery.sequence])
        for delivery in records(result.tables, Delivered)
        if delivery.hops == 1
    )


def memorized(result: RunResult) -> set[tuple[NodeId, int]]:
    return {
        (event.publisher, event.sequence)
        for event in records(result.tables, Published)
        if event.event_class == "memorized"
    }


def memorized_missing(result: RunResult) -> int:
    """Pairs of a memorized event and another node that never got it."""
    got = {(d.publisher, d.sequence, d.node) for d in records(result.tables, Delivered) if d.matched}
    nodes = range(result.info.nodes)
    wanted = {(p, s, node) for p, s in memorized(result) for node in nodes if node != p}
    return len(wanted - got)


def same_order(both: dict[str, tuple[float, float]]) -> bool:
    """Whether strategies that differ clearly in the simulator have the same order in the emulation.

    Clearly: by more than `GOAL_AGREEMENT`; closer ones may come in any order.
    """
    return not any(a[0] > b[0] + GOAL_AGREEMENT and a[1] < b[1] for a in both.values() for b in both.values())


def main() -> int:
    parts = ("realtime", "memorized", "healing", "killing", "crowd", "agreement")
    arguments = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    arguments.add_argument("--part", default=",".join(parts))
    arguments.add_argument("--short", action="store_true")
    arguments.add_argument("--strategies", default="")
    arguments.add_argument("--published", action="store_true", help="the parameters of the papers")
    arguments.add_argument("--seed", type=int)
    arguments.add_argument("--json", action="store_true")
    arguments.add_argument("--out", help="where to keep the traces; a new folder")
    options = arguments.parse_args()
    unknown = [part for part in options.part.split(",") if part not in parts]
    if unknown:
        arguments.error(f"no part is called {unknown[0]}; there are {', '.join(parts)}")
    bench = Bench(options)
    answer: dict[str, list[Row]] = {}
    for part in options.part.split(","):
        make: Callable[[], list[Row]] = getattr(bench, part)
        answer[part] = make()
        if not options.json:
            show(part, answer[part])
    if options.json:
        print(json.dumps(answer, indent=1))
    return int(any(row.get("goal") == "MISSED" for rows in answer.values() for row in rows))


def show(part: str, rows: list[Row]) -> None:
    heads = list(dict.fromkeys(head for row in rows for head in row))
    lines = [[_text(row.get(head)) for head in heads] for row in rows]
    widths = [max(map(len, column)) for column in zip(heads, *lines, strict=True)]
    print(f"\n{part}")
    for line in (heads, *lines):
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())
    sys.stdout.flush()


def _shown(row: Row) -> Row:
    return {key: round(value, 4) if isinstance(value, float) else value for key, value in row.items()}


def _text(value: Any) -> str:
    return "" if value is None else str(value)


def _met(*goals: bool) -> str:
    return "met" if all(goals) else "MISSED"


def _of_ideal(result: RunResult) -> tuple[float | None, float | None]:
    """What was delivered of what any protocol could deliver until a second before the end, and that of all:
    no real node delivers over a contact that begins in the last instant of a run."""
    last = result.info.duration - SECOND
    pairs = {(p.publisher, p.sequence, p.node) for p in records(result.tables, AttainablePair) if p.t <= last}
    served = {(d.publisher, d.sequence, d.node) for d in records(result.tables, Delivered) if d.matched}
    expected = result.metrics["expected"]
    share = len(pairs & served) / len(pairs) if pairs else None
    return share, len(pairs) / expected if expected else None


def _milliseconds(time: float | int | None) -> float | None:
    return None if time is None else round(time * 1000, 1)


def _delay(result: RunResult) -> str:
    delay = result.info.play_delay
    return f"{(delay or 0) / 1000:.1f}{'' if result.remark is None else ' !'}"


if __name__ == "__main__":
    raise SystemExit(main())

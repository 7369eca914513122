"""Who leads where: for each scenario and quantity the best entry, and those not told apart from it.

Delivery decides. Latency and cost are compared among those that lead on delivery only: what delivers nothing
is quick and cheap. Runs of one seed have the same motion and publications, so entries are compared in pairs
of a seed, with Holm's correction over all comparisons of a quantity (`lab/report/statistics.py`). The best is
chosen by the same runs that it is then compared with, which favours it a little.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from scipy import stats

from roamcast.lab.report.statistics import SIGNIFICANT, Difference, difference, holm
from roamcast.lab.report.verdict import octets_per_delivery
from roamcast.lab.sweep.results import Results, means
from roamcast.lab.sweep.summary import SampleMean, spread
from roamcast.scenario.model import Workload

Sample = Mapping[int, float]
"""By seed."""


class LeagueQuantity(NamedTuple):
    name: str
    meaning: str
    unit: str
    higher_is_better: bool
    # The sample of a cell in a scenario whose events have this many octets of payload.
    sample: Callable[[Results, int, int], Sample]


def _metric(name: str) -> Callable[[Results, int, int], Sample]:
    return lambda results, cell, _: results.values(name, cell)


def _cost(results: Results, cell: int, size: int) -> Sample:
    return {seed: octets / size for seed, octets in octets_per_delivery(results, cell).items()}


DELIVERY = LeagueQuantity(
    "delivery of the attainable",
    "Served in time, of the (event, subscriber) pairs that any protocol could have served in time",
    "",
    True,
    _metric("delivery_of_limit"),
)
WHOLE = LeagueQuantity(
    "delivery of all",
    "Served, of all expected pairs, late ones and those that no protocol can serve included",
    "",
    True,
    _metric("delivery_ratio"),
)
LATENCY = LeagueQuantity(
    "latency",
    "95th percentile from publication to delivery, of the pairs served",
    "s",
    False,
    _metric("latency_p95"),
)
EXCESS = LeagueQuantity(
    "latency beyond the limit",
    "95th percentile of delivery minus earliest possible arrival, of the attainable pairs served",
    "s",
    False,
    _metric("latency_excess_p95"),
)
AIRTIME = LeagueQuantity(
    "airtime over the limit",
    "Airtime of all frames, control included, over that of the fewest broadcasts that serve the same pairs",
    "",
    False,
    _metric("airtime_of_limit"),
)
COST = LeagueQuantity(
    "cost",
    "Octets all nodes sent, control and underlay included, without link-layer headers, per octet delivered",
    "",
    False,
    _cost,
)
QUANTITIES = (DELIVERY, WHOLE, LATENCY, EXCESS, COST, AIRTIME)
AMONG_LEADERS = (LATENCY, EXCESS, COST, AIRTIME)
INDICATORS = {
    "limit_delivery": "attainable",
    "path_hops_network": "mean shortest path",
    "degree_mean": "mean degree",
    "reachable_ratio": "pairs without a path when published",
    "link_changes_per_s": "link changes per second",
}
"""What a scenario is like, whatever the strategy: the metric, and its name in the table."""
MARGIN = 0.01  # of delivery: who differs less is not worth more seeds; chosen by us
POWER = 0.8  # the customary chance of finding a difference that is there


@dataclass(frozen=True)
class Score:
    """One entry in one scenario, by one quantity."""

    found: SampleMean
    leads: bool  # the best, or not told apart from it; for latency and cost, among the leaders on delivery


class Rank(NamedTuple):
    """One entry over all scenarios."""

    entry: str
    delivery: SampleMean  # each seed's mean over the scenarios
    leads: int  # scenarios in which it leads on delivery
    cheapest: int  # those of them in which no other leader is known to cost less


@dataclass(frozen=True)
class LeagueStanding:
    entries: list[str]
    scenarios: list[str]
    scores: dict[tuple[str, str, str], Score]  # quantity, scenario, entry
    ranks: list[Rank]  # the first leads most often
    indicators: dict[str, list[float | None]]  # by scenario, those of `INDICATORS`
    needed: dict[str, int]  # by scenario that is undecided: about how many seeds would decide
    seeds: int

    def score(self, quantity: LeagueQuantity, scenario: str, entry: str) -> Score:
        return self.scores[quantity.name, scenario, entry]

    def leaders(self, quantity: LeagueQuantity, scenario: str) -> list[str]:
        return [entry for entry in self.entries if self.score(quantity, scenario, entry).leads]

    def best(self, quantity: LeagueQuantity, scenario: str) -> str | None:
        """The leader with the best mean; None where nobody has a value."""
        return _best(
            quantity,
            {
                entry: self.score(quantity, scenario, entry).found
                for entry in self.leaders(quantity, scenario)
            },
        )


def standing(results: Results, variants: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> LeagueStanding:
    """`variants`: those of the experiment, for the sizes of the scenarios' events."""
    entries, scenarios = (list(results.description.axes[axis]) for axis in ("entry", "scenario"))
    cell_of = {(cell["scenario"], cell["entry"]): number for number, cell in enumerate(results.cells)}

    def sample(quantity: LeagueQuantity, scenario: str, entry: str) -> Sample:
        size = variants["scenario"][scenario].get("workload.size", Workload().size)
        return quantity.sample(results, cell_of[scenario, entry], size)

    scores: dict[tuple[str, str, str], Score] = {}
    needed: dict[str, int] = {}
    for quantity in QUANTITIES:
        judged = DELIVERY if quantity in AMONG_LEADERS else None
        rows = {
            scenario: {entry: sample(quantity, scenario, entry) for entry in entries}
            for scenario in scenarios
        }
        allowed = {
            scenario: [e for e in entries if judged is None or scores[judged.name, scenario, e].leads]
            for scenario in scenarios
        }
        leading, seeds_needed = _leading(
            quantity, {s: {e: rows[s][e] for e in allowed[s]} for s in scenarios}
        )
        needed = seeds_needed if quantity is DELIVERY else needed
        for scenario in scenarios:
            for entry in entries:
                found = spread(list(rows[scenario][entry].values()))
                scores[quantity.name, scenario, entry] = Score(found, entry in leading[scenario])
    ranks = [
        Rank(
            entry,
            spread(list(means([sample(DELIVERY, scenario, entry) for scenario in scenarios]).values())),
            sum(scores[DELIVERY.name, scenario, entry].leads for scenario in scenarios),
            sum(scores[COST.name, scenario, entry].leads for scenario in scenarios),
        )
        for entry in entries
    ]
    ranks.sort(key=lambda rank: (-rank.leads, -rank.cheapest, -(rank.delivery.mean or 0.0), rank.entry))
    indicators = {
        scenario: _indicators(results, [cell_of[scenario, entry] for entry in entries])
        for scenario in scenarios
    }
    seeds = len(results.description.seeds)
    return LeagueStanding(entries, scenarios, scores, ranks, indicators, needed, seeds)


def _indicators(results: Results, cells: Sequence[int]) -> list[float | None]:
    """Means over the seeds, of the first entry that has them: those of one seed are the same for all."""
    found: list[float | None] = []
    for name in INDICATORS:
        sample = next((values for cell in cells if (values := results.values(name, cell))), {})
        mean = spread(list(sample.values())).mean
        found.append(1 - mean if mean is not None and name == "reachable_ratio" else mean)
    return found


def _leading(
    quantity: LeagueQuantity, rows: Mapping[str, Mapping[str, Sample]]
) -> tuple[dict[str, list[str]], dict[str, int]]:
    """By scenario: the best entry, and all that no test tells apart from it; and about how many seeds would
    tell those apart that differ by `MARGIN`, if they go on as they have begun."""
    compared: list[tuple[str, str, Difference]] = []
    leading: dict[str, list[str]] = {}
    needed: dict[str, int] = {}
    for scenario, samples in rows.items():
        best = _best(quantity, {entry: spread(list(sample.values())) for entry, sample in samples.items()})
        leading[scenario] = [] if best is None else [best]
        if best is not None:
            others = [entry for entry, sample in samples.items() if sample and entry != best]
            compared += [(scenario, entry, difference(samples[best], samples[entry])) for entry in others]
    corrected = holm([found.p for _, _, found in compared])
    for (scenario, entry, found), p in zip(compared, corrected, strict=True):
        if found.mean == 0 if found.constant else p is None or p >= SIGNIFICANT:
            leading[scenario].append(entry)
            if found.effect and found.mean is not None and abs(found.mean) >= MARGIN:
                needed[scenario] = max(needed.get(scenario, 0), _seeds(found.effect, len(compared)))
    return leading, needed


def _seeds(effect: float, comparisons: int) -> int:
    """For a paired t-test at the strictest step of Holm's correction: the usual normal approximation."""
    wanted = stats.norm.isf(SIGNIFICANT / comparisons / 2) + stats.norm.ppf(POWER)
    return max(2, math.ceil((wanted / effect) ** 2 + 2))


def _best(quantity: LeagueQuantity, found: Mapping[str, SampleMean]) -> str | None:
    """The entry with the best mean; of equal means the first in the order given."""
    sign = 1.0 if quantity.higher_is_better else -1.0
    known = [entry for entry, mean in found.items() if mean.mean is not None]
    return max(known, key=lambda entry: sign * _mean(found[entry]), default=None)


def _mean(found: SampleMean) -> float:
    return math.nan if found.mean is None else found.mean

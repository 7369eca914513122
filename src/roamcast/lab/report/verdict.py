"""Which strategy serves a scenario best, what it costs, and whether that could be chance, in words.

Delivery decides: the share of what any protocol could have delivered in time (`delivery_of_limit`), so that
placements which nobody can serve do not count; where that was not measured, the share of all. Of those that
deliver within a hundredth of the best, the one that sends the fewest octets per delivery serves best: so
little more delivery is worth no price. The Pareto front is whoever no other
beats in both. Tests are paired by seed, with Holm's correction over the comparisons with the winner.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from roamcast.lab.report.layout import CellLayout
from roamcast.lab.report.numbers import number, probability
from roamcast.lab.report.statistics import SIGNIFICANT, difference, holm
from roamcast.lab.sweep.results import Results, means
from roamcast.lab.sweep.summary import SampleMean, spread

LIMITED, WHOLE = "delivery_of_limit", "delivery_ratio"
MARGIN = 0.01  # of delivery; chosen by us, as is the next
PLACES_MAX = 12  # combinations of the other axes that get a verdict of their own


@dataclass(frozen=True)
class Served:
    """One strategy in one place: what it achieved and what it cost."""

    name: str
    series: int
    delivery: SampleMean
    cost: SampleMean  # octets sent per delivery
    latency: SampleMean  # seconds, 95th percentile


@dataclass(frozen=True)
class PlaceVerdict:
    """`place` is empty for the mean over all cells. `apart`: p after Holm's correction, of each other
    strategy's delivery against the winner's; None where there is nothing to test."""

    place: str
    served: list[Served]
    winner: Served
    front: list[str]
    apart: dict[str, float | None]
    metric: str  # what delivery is here: `LIMITED` or `WHOLE`

    def of(self, name: str) -> Served:
        return next(one for one in self.served if one.name == name)


def octets_per_delivery(results: Results, cell: int) -> dict[int, float]:
    """Octets that all nodes sent, control and underlay included, over pairs delivered, by seed."""
    control, data, delivered = (
        results.values(name, cell) for name in ("control_bytes", "data_bytes", "delivered")
    )
    return {
        seed: (control[seed] + data[seed]) / delivered[seed]
        for seed in delivered
        if delivered[seed] and seed in control and seed in data
    }


def judge(results: Results, layout: CellLayout, place: Mapping[str, int]) -> PlaceVerdict | None:
    """The verdict; None where fewer than two strategies have a delivery ratio."""
    served, samples = [], {}
    measured = [cell for cell in layout.matching(place) if results.values(WHOLE, cell)]
    metric = LIMITED if all(results.values(LIMITED, cell) for cell in measured) else WHOLE
    for index, series in enumerate(layout.series()):
        cells = layout.matching(dict(series) | dict(place))
        delivery = results.means(metric, cells)
        if delivery:
            name = layout.label(series)
            samples[name] = delivery
            cost = means([octets_per_delivery(results, cell) for cell in cells])
            latency = results.means("latency_p95", cells)
            served.append(Served(name, index, *(spread(list(s.values())) for s in (delivery, cost, latency))))
    if len(served) < 2:
        return None
    best = max(_delivery(one) for one in served)
    near = [one for one in served if _delivery(one) >= best - MARGIN]
    winner = min(near, key=lambda one: (_cost(one), -_delivery(one), one.name))
    others = [one.name for one in served if one is not winner]
    tested = [difference(samples[winner.name], samples[name]) for name in others]
    apart = dict(zip(others, holm([found.p for found in tested]), strict=True))
    return PlaceVerdict(layout.full_label(place), served, winner, _front(served), apart, metric)


def judge_places(results: Results, layout: CellLayout) -> list[PlaceVerdict]:
    """For each combination of the other axes; none where there are too many, or no other axis."""
    places = layout.combinations(layout.others())
    if not 1 < len(places) <= PLACES_MAX:
        return []
    return [found for place in places if (found := judge(results, layout, place)) is not None]


def sentences(whole: PlaceVerdict, places: Sequence[PlaceVerdict], compared: str, others: str) -> list[str]:
    """The verdict, most important first."""
    winner = whole.winner
    over = " over all cells" if places else ""
    said = [
        f"{winner.name} serves this scenario best{over}: it delivered {_share(winner)} of {_basis(whole)}"
        + (f", for {_octets(winner)} octets sent per delivery" if winner.cost.mean is not None else "")
        + (
            f"; 95% of its deliveries took at most {number(winner.latency.mean, 3)} s."
            if winner.latency.mean is not None
            else "."
        )
    ]
    winners = {verdict.winner.name for verdict in places}
    if len(winners) > 1:
        named = "; ".join(f"{verdict.place}: {verdict.winner.name}" for verdict in places)
        said.append(f"The answer depends on {others}. {named}.")
    elif winners == {winner.name}:
        said.append(f"It is the same for every value of {others}.")
    near = [
        one.name
        for one in whole.served
        if one is not winner and abs(_delivery(one) - _delivery(winner)) <= MARGIN
    ]
    if near:
        less = " for more octets" if winner.cost.mean is not None else ""
        said.append(f"{_listed(near)} delivered about as much{less} (within {MARGIN:g}).")
    said += _chance(whole, near)
    cheaper = [
        one
        for one in sorted(whole.served, key=_cost)
        if one.name in whole.front and one is not winner and _cost(one) < _cost(winner)
    ]
    if cheaper:
        named = "; ".join(
            f"{one.name}: {_share(one)} for {_octets(one)} octets, {1 - _cost(one) / _cost(winner):.0%} less"
            for one in cheaper
        )
        said.append(f"Cheaper, and delivering less: {named}.")
    beaten = [one.name for one in whole.served if one.name not in whole.front]
    if beaten and winner.cost.mean is not None:
        another = "another strategy" if compared.startswith("strategy.") else "another"
        said.append(f"Off the front, because {another} delivers more for less: {_listed(beaten)}.")
    return said


def _chance(whole: PlaceVerdict, near: Sequence[str]) -> list[str]:
    """How much of the winner's lead is more than chance, in words."""
    sure: list[str] = []
    unsure: list[str] = []
    for name, p in whole.apart.items():
        if name not in near and p is not None:
            (sure if p < SIGNIFICANT else unsure).append(
                f"{name} ({_share(whole.of(name))}, p {probability(p)})"
            )
    said = []
    if sure:
        said.append(f"Beyond chance its delivery differs from that of {_listed(sure)}.")
    if unsure:
        seeds = whole.winner.delivery.count
        said.append(f"With {seeds} seeds it could be chance that it differs from {_listed(unsure)}.")
    return said


def _front(served: Sequence[Served]) -> list[str]:
    """Whoever no other beats: none delivers as much for less, or more for as little."""
    return [
        one.name
        for one in served
        if not any(
            _delivery(other) >= _delivery(one)
            and _cost(other) <= _cost(one)
            and (_delivery(other), _cost(other)) != (_delivery(one), _cost(one))
            for other in served
        )
    ]


def _delivery(one: Served) -> float:
    assert one.delivery.mean is not None
    return one.delivery.mean


def _cost(one: Served) -> float:
    return float("inf") if one.cost.mean is None else one.cost.mean


def _basis(whole: PlaceVerdict) -> str:
    return (
        "what any protocol could have delivered in time" if whole.metric == LIMITED else "what was expected"
    )


def _share(one: Served) -> str:
    return f"{_delivery(one):.3f}"


def _octets(one: Served) -> str:
    return number(one.cost.mean, 3)


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"

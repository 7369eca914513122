"""The load of Chapar's Figure 4, and what is counted of it."""

from collections.abc import Iterable

import pytest

from roamcast.lab.studies.event_traffic import (
    KINDS,
    SIZE_MAX,
    SIZE_MEAN,
    SIZE_MIN,
    EventTraffic,
    _size,
)
from roamcast.streams import stream


def test_sizes_have_the_papers_minimum_and_mean() -> None:
    random = stream(1, "sizes")
    sizes = [_size(random.gauss(0.0, 1.0)) for _ in range(20_000)]
    assert min(sizes) >= SIZE_MIN and max(sizes) == SIZE_MAX
    assert sum(sizes) / len(sizes) == pytest.approx(SIZE_MEAN, rel=0.05)


def test_six_subscriptions_a_minute_are_as_many_messages() -> None:
    """Figure 4. A second one of the same node and filter would send nothing."""
    asked = EventTraffic(duration=3600.0).tables(seed=3)["workload"]["subscriptions"]
    assert len(asked) == len({(each["node"], each["filter"]) for each in asked}) == 354


def test_every_frame_is_of_a_kind_and_all_together_are_the_event_system() -> None:
    figures = EventTraffic(side=400.0, duration=240.0, nodes=12).run(seed=1).metrics
    assert set(figures) == set(EventTraffic.figures())

    def total(unit: str, kinds: Iterable[str]) -> float:
        return sum(figures[f"{kind}_{unit}"] or 0 for kind in kinds)

    assert all(figures[f"{kind}_messages"] for kind in KINDS.keys() - {"attach"})
    own = KINDS.keys() - {"olsr", "rider"}  # what rides is on a frame of OLSR's
    assert total("messages", own) == figures["event_system_messages"]
    assert total("bytes", {*own, "rider"}) == figures["event_system_bytes"]
    assert total("messages", ("control", "data")) == total("messages", {*own, "olsr"})
    published = figures["subscription_bytes_published"] or 0
    assert 65 <= published / total("messages", ["subscription"]) <= 70
    assert figures["delivery_ratio"] == 1.0

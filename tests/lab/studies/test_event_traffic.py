"""The load of Chapar's Figure 4, and what is counted of it."""

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


def test_every_frame_is_of_a_kind_and_all_together_are_the_event_system() -> None:
    figures = EventTraffic(side=400.0, duration=120.0, nodes=12).run(seed=1).metrics
    assert set(figures) == set(EventTraffic.figures())
    kinds = KINDS.keys() - {"olsr"}
    for unit in ("messages", "bytes"):
        parts = [figures[f"{kind}_{unit}"] for kind in kinds]
        assert all(part is not None and part > 0 for part in parts)
        assert sum(part for part in parts if part is not None) == figures[f"event_system_{unit}"]
    all_frames = [figures[name] for name in ("control_messages", "data_messages")]
    of_a_kind = [figures[f"{kind}_messages"] for kind in KINDS]
    assert sum(n for n in all_frames if n is not None) == sum(n for n in of_a_kind if n is not None)
    messages, published = figures["subscription_messages"], figures["subscription_bytes_published"]
    assert messages is not None and published is not None and 65 <= published / messages <= 70
    assert figures["delivery_ratio"] == 1.0

"""The gain of one approach over another, instant by instant."""

import pytest

from roamcast.lab.studies.opportunistic_overlays import Timeline, gains, timeline
from roamcast.trace import PathsSampled


def test_gains_are_of_the_instants_that_both_have() -> None:
    static = {10: 4.0, 20: 9.0, 30: 5.0, 40: 30.0}
    opportunistic = {10: 4.0, 20: 3.5, 30: 6.0, 50: 1.0}
    assert gains(static, opportunistic) == {
        "gain_max": 5.5,
        "gain_mean": pytest.approx((0 + 5.5 - 1) / 3),
        "shorter_share": pytest.approx(1 / 3),
    }
    assert gains(static, {}) == dict.fromkeys(Timeline.READINGS)


def test_a_timeline_is_of_the_overlay_and_the_measured_time() -> None:
    samples = [
        PathsSampled(10, "overlay", 2, 8),
        PathsSampled(20, "overlay", 4, 10),
        PathsSampled(20, "network", 4, 4),
        PathsSampled(30, "overlay", 0, 0),
    ]
    assert timeline(samples, 20) == {20: 2.5}


def test_in_a_minute_the_static_approach_is_already_the_longer_one() -> None:
    found = Timeline(duration=60.0).run(seed=1).metrics
    assert found["gain_max"] is not None and found["gain_mean"] is not None
    assert found["gain_max"] > found["gain_mean"] > 0
    assert found["shorter_share"] is not None and 0.5 < found["shorter_share"] <= 1

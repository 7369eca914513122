"""Handoffs among forty walkers on one shared channel that loses frames."""

import pytest
from tests.strategy.opportunistic.walkers import walk

pytestmark = pytest.mark.long


def test_homes_follow_walkers_and_nothing_is_lost_doubled_or_reordered() -> None:
    walked = walk(1, area=600.0)
    assert walked.moved >= 10 and walked.expected == 4_800  # else the next line proves nothing
    assert (walked.lost, walked.doubled, walked.reordered, walked.wrong) == (0, 0, 0, 0)
    assert walked.handoff_ms[len(walked.handoff_ms) // 2] < 500

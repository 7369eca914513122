"""Figures 13 and 14 in small: what is counted as needless, and that overload control leaves none of it."""

import pytest

from roamcast.lab.studies.opportunistic_overlays import Overload


def test_with_overload_control_no_broker_is_overloaded_while_another_in_reach_has_room() -> None:
    controlled, free = (
        Overload(load=0.7, duration=50.0, overload_control=control).run(seed=2).metrics
        for control in (True, False)
    )
    assert controlled["needless_share"] == 0.0
    assert (
        free["needless_share"] is not None and free["needless_share"] > 0.3
    )  # else the above proves nothing
    assert controlled["load_mean"] == pytest.approx(0.7, abs=0.05)

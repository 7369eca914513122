"""Live nodes in virtual time, at length: a crash at every write of a conversation, and 20,000 schedules.

A failure names its seed; `python -m tests.virtual SEED` plays it alone. About an hour on one core.
"""

import pytest
from tests.virtual.conversation import converse
from tests.virtual.schedules import play

BATCH = 100


@pytest.mark.parametrize("off", [0.1, 1.0, 63.0, 700.0])
@pytest.mark.parametrize("events_max", [5, 10_000])
def test_nothing_acknowledged_is_lost_whichever_write_the_node_dies_at(off: float, events_max: int) -> None:
    for point in range(converse(events_max=events_max).points):
        converse(kill_at=point, off=off, events_max=events_max)


@pytest.mark.parametrize("first", range(1_000_000, 1_020_000, BATCH))
def test_random_schedules_lose_and_double_nothing(first: int) -> None:
    failures = []
    for seed in range(first, first + BATCH):
        try:
            play(seed, strategy="epidemic")
        except AssertionError as error:
            failures.append(str(error))
    assert not failures, "\n".join(failures)

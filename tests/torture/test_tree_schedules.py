"""Ten thousand random schedules of the acyclic overlay with each setting; a failure names its seed."""

import pytest
from tests.strategy.tree.schedules import SETTINGS, play

SCHEDULES = 10_000
BATCH = 50


@pytest.mark.parametrize("first", range(0, SCHEDULES, BATCH))
@pytest.mark.parametrize("setting", SETTINGS)
def test_random_schedules_make_no_cycle_and_end_in_one_tree_per_partition(setting: str, first: int) -> None:
    failures = []
    for seed in range(first, first + BATCH):
        try:
            play(seed, setting)
        except AssertionError as error:
            failures.append(str(error))
    assert not failures, "\n".join(failures)

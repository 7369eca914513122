"""Ten thousand random schedules of handoffs; a failure names its seed."""

import pytest
from tests.strategy.opportunistic.schedules import play

SCHEDULES = 10_000
BATCH = 50


@pytest.mark.parametrize("first", range(0, SCHEDULES, BATCH))
def test_random_schedules_lose_double_and_reorder_nothing(first: int) -> None:
    failures: list[str] = []
    for seed in range(first, first + BATCH):
        failures.extend(f"schedule {seed}: {problem}" for problem in play(seed).problems)
    assert not failures, "\n".join(failures)

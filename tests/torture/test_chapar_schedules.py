"""Ten thousand random schedules for Chapar's table 1, as many with full tables; crashes, loss, OLSR.

A failure names its seed. About forty minutes on one core.
"""

import pytest
from tests.strategy.chapar.schedules import play

SCHEDULES = {"partitions": 10_000, "full": 10_000, "crashes": 5_000, "loss": 3_000, "olsr": 2_000}
BATCH = 100


@pytest.mark.parametrize(
    ("name", "first"),
    [(name, first) for name, count in SCHEDULES.items() for first in range(10_000, 10_000 + count, BATCH)],
)
def test_random_schedules_lose_double_and_reorder_nothing(name: str, first: int) -> None:
    failures = []
    for seed in range(first, first + BATCH):
        try:
            play(seed, name)
        except AssertionError as error:
            failures.append(str(error))
    assert not failures, "\n".join(failures)

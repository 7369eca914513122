"""Two hundred rounds of `kill -9` at random moments, QoS 1 and 2, lasting sessions on both sides."""

import asyncio
from pathlib import Path

import pytest
from tests.gateway.mqtt.killing import kill_at_random

pytestmark = pytest.mark.realtime

ROUNDS = 100


@pytest.mark.parametrize("seed", [101, 102])
def test_nothing_is_lost_and_nothing_doubled(seed: int, tmp_path: Path) -> None:
    counts = asyncio.run(kill_at_random(tmp_path, seed, ROUNDS, 'qos1 = "memorized"'))
    print(f"seed {seed}: {counts}")  # noqa: T201
    assert counts.kills >= ROUNDS
    assert (counts.lost, counts.doubled_exactly_once, counts.doubled_confirmed) == (0, 0, 0)

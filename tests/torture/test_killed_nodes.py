"""Two hundred rounds of `kill -9` at random moments, QoS 1 and 2, lasting sessions on both sides."""

import asyncio
from pathlib import Path

import pytest
from tests.gateway.mqtt.killing import kill_at_random

pytestmark = pytest.mark.realtime

ROUNDS = 100


@pytest.mark.parametrize(("seed", "events_max"), [(101, 0), (102, 0), (103, 100), (104, 100)])
def test_nothing_is_lost_and_nothing_doubled(seed: int, events_max: int, tmp_path: Path) -> None:
    """With the usual store, and with one that takes far less than what is sent."""
    counts = asyncio.run(kill_at_random(tmp_path, seed, ROUNDS, events_max=events_max))
    print(f"seed {seed}: {counts}")  # noqa: T201
    assert counts.kills >= ROUNDS
    assert (counts.lost, counts.doubled_exactly_once, counts.doubled_confirmed) == (0, 0, 0)

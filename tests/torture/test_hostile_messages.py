"""A hundred thousand well-formed messages to each strategy and underlay; a failure names its seed."""

import pytest
from tests.contract.test_hostile_messages import CASES, HostileNetwork


@pytest.mark.parametrize("seed", range(1_000, 1_100))
@pytest.mark.parametrize(("strategy", "underlay"), CASES)
def test_no_well_formed_message_raises_or_takes_long(strategy: str, underlay: str | None, seed: int) -> None:
    assert HostileNetwork(strategy, underlay, seed).play(1_000) == []

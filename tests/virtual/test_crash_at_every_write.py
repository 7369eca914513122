"""One scripted conversation, and a node that dies at each of its writes: nothing acknowledged is lost."""

import pytest
from tests.virtual.conversation import converse

POINTS = converse().points


def test_the_conversation_repeats_to_the_octet() -> None:
    assert converse().digest == converse().digest
    assert POINTS > 300, "else the next test tries little"


# A stride that is prime to the writes of one message; `tests/torture` tries every write.
@pytest.mark.parametrize("events_max", [5, 10_000], ids=["a full store", "a large store"])
@pytest.mark.parametrize("off", [1.0, 63.0], ids=["a second", "a minute"])
def test_nothing_acknowledged_is_lost_whichever_write_the_node_dies_at(off: float, events_max: int) -> None:
    for point in range(int(off) % 5, POINTS, 5):
        converse(kill_at=point, off=off, events_max=events_max)

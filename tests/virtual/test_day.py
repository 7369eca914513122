"""No false word: a warning without a cause trains people to read none."""

from random import Random

import pytest
from tests.virtual.day import EVENTS, Day


@pytest.mark.long
def test_every_warning_of_a_day_has_its_cause() -> None:
    order = Random(31).sample(EVENTS, len(EVENTS))
    day = Day(31).play(order, pause=60.0)
    assert day.without_cause() == []
    assert all(not problems for _, problems in day.last), "when all is well again, nobody is warned"
    words = {word.text for word in day.words}
    for part in ("is revoked, says", "has a clock that is", "octets left", "interface eth0 is down"):
        assert any(part in text for text in words), f"else {part} was not tried"
    cables = [word for word in day.words if word.text.startswith("interface eth0")]
    assert len(cables) == 1, "one word for one cable"

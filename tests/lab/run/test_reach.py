"""Noise, counted by hand."""

from roamcast.lab.run.expected import reached
from roamcast.lab.run.tables import Expected, ReachedNodes
from roamcast.trace import Transmitted


def sent(node: int, received: set[int], event: tuple[int, int] | None = (0, 1)) -> Transmitted:
    publisher, sequence = event or (None, None)
    bits = sum(1 << each for each in received)
    return Transmitted(0, node, None, "data", "data", 9, 1, 1, publisher, sequence, True, bits, 0, 0)


def wanted(node: int, event: tuple[int, int] = (0, 1)) -> Expected:
    return Expected(*event, node, 0, True, 1)


def test_noise_is_who_received_what_nobody_there_wanted() -> None:
    # 0 publishes; 1 relays without wanting it, 2 overhears, 3 wants and relays it, 4 wants it in vain.
    frames = [sent(0, {1}), sent(1, {0, 2, 3}), sent(3, {1, 2})]
    assert reached(frames, [wanted(3), wanted(4)]) == [ReachedNodes(0, 1, nodes=3, unwanted=2, relayed=1)]


def test_frames_without_an_event_and_events_that_reached_nobody_leave_no_row() -> None:
    assert reached([sent(0, {1, 2}, event=None), sent(0, set()), sent(2, {0})], [wanted(1)]) == []


def test_events_are_counted_apart() -> None:
    frames = [sent(0, {1}, (0, 2)), sent(0, {1}, (0, 1)), sent(5, {1, 2}, (5, 1))]
    found = reached(frames, [wanted(1, (0, 2)), wanted(1, (5, 1))])
    assert found == [ReachedNodes(0, 1, 1, 1, 0), ReachedNodes(0, 2, 1, 0, 0), ReachedNodes(5, 1, 2, 1, 0)]

"""The disk radio: frames queue, take size / bitrate, then a delay that may be drawn for each of them."""

from itertools import pairwise

from roamcast.host import Channel, Frame, Kind
from roamcast.runtime.sim.engine import Engine
from roamcast.runtime.sim.links import RadioLinks
from roamcast.runtime.sim.medium import DiskMedium, Job
from roamcast.streams import stream
from roamcast.trace import Trace
from roamcast.units import MILLISECOND, Micros
from roamcast.world.radio import DiskRadio

GAP = 20 * MILLISECOND


def arrivals(delay: float | tuple[float, float], seed: int = 1, frames: int = 1_000) -> list[Micros]:
    """When frames of 250 octets arrive, sent every 20 ms over 2 Mbit/s: each is on the air for 1 ms."""
    engine, links = Engine(), RadioLinks(2)
    links.plan(0, 1, True)
    medium = DiskMedium(engine, links, Trace(), stream(seed, "radio"), DiskRadio(delay=delay))
    heard: list[tuple[Micros, int]] = []
    medium.receivers[Channel.STRATEGY][1] = lambda sender, payload: heard.append(
        (engine.now, int.from_bytes(payload, "big"))
    )
    for number in range(frames):
        frame = Frame(number.to_bytes(250, "big"), Kind.DATA, "test")
        engine.at(number * GAP, medium.send, Job(0, Channel.STRATEGY, frame, None, None))
    engine.run(frames * GAP + 60_000 * MILLISECOND)
    assert [number for _, number in heard] == list(range(frames))  # in order, and none is lost
    return [at for at, _ in heard]


def test_a_constant_delay_follows_the_transmission() -> None:
    by_hand = [number * GAP + (1 + 3) * MILLISECOND for number in range(1_000)]
    assert arrivals(0.003) == arrivals((0.003, 0.003)) == by_hand


def test_a_delay_between_two_bounds_is_drawn_for_each_frame() -> None:
    late = [at - number * GAP - MILLISECOND for number, at in enumerate(arrivals((0.002, 0.012)))]
    assert (
        2 * MILLISECOND <= min(late) < 2.1 * MILLISECOND
        and 11.9 * MILLISECOND < max(late) <= 12 * MILLISECOND
    )
    assert len(set(late)) > 900
    # Uniform: the mean of 1000 draws has a standard deviation of 10 ms / sqrt(12 * 1000) = 0.09 ms.
    assert abs(sum(late) / len(late) - 7 * MILLISECOND) < 0.4 * MILLISECOND
    assert arrivals((0.002, 0.012)) != arrivals((0.002, 0.012), seed=2)
    assert arrivals((0.002, 0.012)) == arrivals((0.002, 0.012))


def test_a_frame_waits_for_those_before_it() -> None:
    """Draws of up to 200 ms, ten gaps: many frames would overtake others."""
    times = arrivals((0.0, 0.2))
    waits = sum(one == other for one, other in pairwise(times))
    assert times == sorted(times) and waits > 500

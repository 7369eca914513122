from roamcast.runtime.emulate.real_time import HEARTBEAT, RealTimeEngine, percentile, seconds_until
from roamcast.units import MILLISECOND, Micros


class Clock:
    def __init__(self) -> None:
        self.now: Micros = 0

    def __call__(self) -> Micros:
        return self.now


def test_an_action_sees_the_instant_it_was_planned_for_however_late_it_runs() -> None:
    clock = Clock()
    engine = RealTimeEngine(clock)
    seen: list[Micros] = []
    engine.at(1_000, lambda _: seen.append(engine.now))
    engine.at(2_000, lambda _: seen.append(engine.now))
    clock.now = 9_000
    engine.run(clock.now)
    assert seen == [1_000, 2_000]
    assert engine.now == 9_000


def test_the_clock_never_goes_back_when_the_machine_was_read_too_early() -> None:
    engine = RealTimeEngine(Clock())
    engine.run(500)
    engine.run(400)
    assert engine.now == 500


def test_beats_on_time_are_not_late() -> None:
    clock = Clock()
    engine = RealTimeEngine(clock)
    engine.beat_until(4 * HEARTBEAT)
    for clock.now in range(0, 4 * HEARTBEAT, 100):
        engine.run(clock.now + 1)
    assert engine.delays == [0, 0, 0, 0]


def test_a_stall_counts_for_every_beat_that_fell_into_it() -> None:
    clock = Clock()
    engine = RealTimeEngine(clock)
    engine.beat_until(40 * MILLISECOND)
    clock.now = 12 * MILLISECOND  # beats were due at 0, 5 and 10 ms
    engine.run(clock.now)
    assert engine.delays == [12_000, 7_000, 2_000]
    assert engine.next_due() == 15 * MILLISECOND


def test_percentiles() -> None:
    values = list(range(100, 0, -1))
    assert percentile(values, 0.5) == 51
    assert percentile(values, 0.99) == 100
    assert percentile([7], 0.99) == 7
    assert percentile([], 0.99) == 0


def test_waiting_is_bounded_and_never_negative() -> None:
    assert seconds_until(None, 0) == 0.1
    assert seconds_until(5_000, 1_000) == 0.004
    assert seconds_until(5_000, 6_000) == 0

"""The order of timers and of planned actions, against an engine that schedules each of them at once."""

from random import Random

import pytest

from roamcast.host import Channel, Layer, TimerName
from roamcast.runtime.sim.engine import LINKS_FIRST, SLOT_BITS, Engine
from roamcast.runtime.sim.host import SimHost
from roamcast.runtime.sim.links import RadioLinks
from roamcast.runtime.sim.medium import IdealMedium
from roamcast.streams import stream
from roamcast.trace import Trace
from roamcast.units import Micros

END: Micros = 60


class Played(Layer):
    """Writes down what is due, and sets, moves and cancels timers by chance."""

    def __init__(self, host: "SimHost | PlainTimers", engine: Engine, seed: int) -> None:
        self.due: list[tuple[Micros, TimerName]] = []
        self._host, self._engine, self._random = host, engine, Random(seed)

    def on_timer(self, name: TimerName) -> None:
        self.due.append((self._engine.now, name))
        self.act()

    def act(self, _: object = None) -> None:
        for _ in range(self._random.randrange(4)):
            name, ahead = self._random.choice("abc"), self._random.choice([-1, 0, 1, 1, 2, 5, 5, 9, 40])
            if self._random.random() < 0.2:
                self._host.cancel_timer(name)
            else:
                self._host.set_timer(name, self._engine.now + ahead)


class PlainTimers:
    """The port's timers in the simplest way: an action for each time that a timer is set."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._numbers: dict[TimerName, int] = {}
        self._number = 0
        self.layer: Layer | None = None

    def set_timer(self, name: TimerName, at: Micros) -> None:
        self._number += 1
        self._numbers[name] = self._number
        self._engine.at(max(at, self._engine.now), self._due, (name, self._number))

    def cancel_timer(self, name: TimerName) -> None:
        self._numbers.pop(name, None)

    def _due(self, due: tuple[TimerName, int]) -> None:
        name, number = due
        if self._numbers.get(name) == number:
            del self._numbers[name]
            assert self.layer is not None
            self.layer.on_timer(name)


def host_of(engine: Engine) -> SimHost:
    trace = Trace()
    medium = IdealMedium(engine, RadioLinks(1), trace, stream(1, "radio"), 0.0)
    return SimHost(0, Channel.STRATEGY, engine, medium, trace, stream(1, "node"), {}, None)


@pytest.mark.parametrize("seed", range(200))
def test_moved_timers_are_due_in_the_order_and_number_of_actions_of_timers_set_anew(seed: int) -> None:
    engines = Engine(), Engine()
    layers: list[Played] = []
    for engine, is_plain in zip(engines, (False, True), strict=True):
        engine.end = END
        plain, host = PlainTimers(engine), host_of(engine)
        layer = Played(plain if is_plain else host, engine, seed)
        plain.layer = layer
        host.attach(layer)
        for at in range(0, END, 5):
            engine.at(at, layer.act)
        engine.run(END)
        layers.append(layer)
    assert layers[0].due == layers[1].due and layers[0].due, f"seed {seed}"
    assert engines[0].executed == engines[1].executed, f"seed {seed}"


def test_a_dead_hosts_moved_timers_count_as_if_they_had_been_played() -> None:
    engine = Engine()
    engine.end = END
    host = host_of(engine)
    for at in (10, 20, 70):
        host.set_timer("late", at)
    host.set_timer("late", 30)
    host.die()
    engine.run(END)
    assert engine.executed == 3


def test_what_is_played_in_turn_keeps_the_places_that_it_would_have_in_the_queue() -> None:
    played: list[str] = []
    engine = Engine()
    engine.at(5, played.append, "before")
    engine.in_turn([(5, "one"), (5, "two"), (7, "three")], played.append)
    engine.at(5, played.append, "after")
    engine.at(7, played.append, "after three")
    assert len(engine._queue) == 4
    engine.run(END)
    assert played == ["before", "one", "two", "after", "three", "after three"]
    assert engine.executed == 6


@pytest.mark.parametrize("seed", range(20))
def test_actions_near_and_far_are_played_by_time_and_then_in_the_order_of_their_scheduling(seed: int) -> None:
    """Those of a later slot wait unordered: against the sorted list of all that was scheduled."""
    random, engine, slot = Random(seed), Engine(), 1 << SLOT_BITS
    planned: list[tuple[Micros, int]] = []
    played: list[tuple[Micros, int]] = []

    def act(entry: tuple[Micros, int]) -> None:
        assert engine.now == entry[0]
        played.append(entry)
        for _ in range(random.choice([0, 0, 1, 3])):
            schedule()

    def schedule() -> None:
        anywhere = random.randrange(5 * slot)
        ahead = random.choice([0, 1, slot - 1, slot, slot + 1, 3 * slot, 90 * slot, anywhere])
        entry = (engine.now + ahead, len(planned))
        planned.append(entry)
        engine.at(entry[0], act, entry)

    for until in (slot - 1, slot, 7 * slot, 7 * slot + 5, 40 * slot, 200 * slot):
        for _ in range(20):
            schedule()
        if random.random() < 0.5:
            engine.world_at(until - 1, LINKS_FIRST, lambda _: None)
        engine.run(until)
        assert engine.now == until
        assert played == sorted(entry for entry in planned if entry[0] < until)
        if len(planned) > 4_000:
            break

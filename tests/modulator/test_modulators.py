"""The modulators that come along, and the guard around any of them."""

import sys
from collections.abc import Callable
from contextlib import suppress
from typing import NoReturn, TypeVar

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roamcast.errors import InputError, WireError
from roamcast.event import Event, Value
from roamcast.modulator import Content, Guard, Modulator, ModulatorError, ModulatorSpec, make
from roamcast.modulator.base import modulated
from roamcast.modulator.guard import OverTimeError
from roamcast.units import Micros

Answer = TypeVar("Answer")


def event(sequence: int = 0, payload: bytes = b"", **attributes: Value) -> Event:
    return Event(1, sequence, attributes, payload, "topic", "type")


def test_a_condition_keeps_what_meets_it_unchanged() -> None:
    condition = make(ModulatorSpec.of("condition", {"sql": "level > 3"}))
    kept = condition.process(event(level=5, payload=b"x"))
    assert kept == Content({"level": 5}, b"x", "topic", "type")
    assert condition.process(event(level=3)) is None


def test_a_projection_keeps_the_named_attributes() -> None:
    projection = make(ModulatorSpec.of("projection", {"attributes": ["b", "z"]}))
    assert projection.process(event(a=1, b=2, payload=b"x")) == Content({"b": 2}, b"", "topic", "type")


def grid(rows: int, columns: int) -> Event:
    return event(payload=np.arange(rows * columns, dtype="<f8").tobytes(), rows=rows, columns=columns, hour=7)


def test_a_bounding_box_cuts_its_part_out_of_a_grid() -> None:
    box = make(ModulatorSpec.of("bounding_box", {"top": 1, "left": 1, "bottom": 3, "right": 9}))
    cut = box.process(grid(4, 3))
    assert cut is not None
    assert cut.attributes == {"rows": 2, "columns": 2, "hour": 7, "row": 1, "column": 1}
    assert np.frombuffer(cut.payload, "<f8").tolist() == [4, 5, 7, 8]
    assert box.process(grid(1, 3)) is None  # the box begins below it
    assert box.process(event(rows=4, columns=3, payload=b"short")) is None
    assert box.process(event(rows="4", columns=3)) is None


sides = st.integers(1, 6)
cells = st.integers(0, 8)


@settings(max_examples=200, deadline=None)
@given(sides, sides, cells, cells, cells, cells)
def test_a_bounding_box_is_a_slice_of_the_matrix(
    rows: int, columns: int, top: int, left: int, bottom: int, right: int
) -> None:
    parameters = {"top": top, "left": left, "bottom": bottom, "right": right}
    cut = make(ModulatorSpec.of("bounding_box", parameters)).process(grid(rows, columns))
    inside = np.arange(rows * columns, dtype="<f8").reshape(rows, columns)[top:bottom, left:right]
    if inside.size == 0:
        assert cut is None
    else:
        assert cut is not None and cut.payload == inside.tobytes()
        assert (cut.attributes["rows"], cut.attributes["columns"]) == inside.shape


def test_an_aggregate_gives_one_event_for_many_and_counts_keys_apart() -> None:
    means = make(ModulatorSpec.of("aggregate", {"attribute": "level", "every": 2, "by": "place"}))
    products = [
        means.process(event(sequence, level=level, place=place))
        for sequence, (level, place) in enumerate([(1, "a"), (5, "b"), (True, "a"), (4, "a"), (7, "b")])
    ]
    assert [product and product.attributes for product in products] == [
        None,
        None,
        None,
        {"count": 2, "sum": 5, "mean": 2.5, "least": 1, "greatest": 4, "place": "a"},
        {"count": 2, "sum": 12, "mean": 6, "least": 5, "greatest": 7, "place": "b"},
    ]


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(st.integers(-100, 100), st.sampled_from("abc")), max_size=40),
    st.integers(1, 5),
    st.data(),
)
def test_an_aggregate_that_moves_goes_on_as_if_it_had_stayed(
    rows: list[tuple[int, str]], every: int, data: st.DataObject
) -> None:
    spec = ModulatorSpec.of("aggregate", {"attribute": "level", "every": every, "by": "place"})
    events = [event(at, level=level, place=place) for at, (level, place) in enumerate(rows)]
    stayed = make(spec)
    wanted = [stayed.process(one) for one in events]
    moving = make(spec)
    got = []
    for one in events:
        if data.draw(st.booleans()):
            state, moving = moving.state(), make(spec)
            moving.restore(state)
        got.append(moving.process(one))
    assert got == wanted and moving.state() == stayed.state()


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=60))
def test_any_octets_are_a_state_or_a_wire_error(state: bytes) -> None:
    for name, parameters in (
        ("aggregate", {"attribute": "a", "every": 2}),
        ("projection", {"attributes": ["a"]}),
    ):
        with suppress(WireError):
            make(ModulatorSpec.of(name, parameters)).restore(state)


@pytest.mark.parametrize(
    ("name", "parameters", "line"),
    [
        ("none", {}, "allowed: aggregate, bounding_box"),
        ("aggregate", {"attribute": "a"}, "every"),
        ("aggregate", {"attribute": "a", "every": 0}, ">= 1"),
        ("condition", {"sql": "level >>"}, "level >>"),
        ("projection", {"attributes": ["a"], "other": 1}, "other"),
    ],
)
def test_what_is_no_modulator_is_one_line(name: str, parameters: dict[str, object], line: str) -> None:
    with pytest.raises(InputError, match=line):
        make(ModulatorSpec.of(name, parameters))
    with pytest.raises(InputError, match="octets"):
        ModulatorSpec.of(name, {"long": "x" * 9_000})


class Wild(Modulator):
    """Does whatever a test wants."""

    def __init__(self, answer: Callable[[], object]) -> None:
        self._answer = answer

    def process(self, event: Event) -> Content | None:
        return self._answer()  # type: ignore[return-value]

    def state(self) -> bytes:
        return self._answer()  # type: ignore[return-value]

    def restore(self, state: bytes) -> None:
        self._answer()


class Counting:
    """A meter that knows no end but the test's."""

    def run(self, call: Callable[[], Answer], modelled: Micros) -> tuple[Answer, Micros]:
        return call(), modelled + 1

    def check(self, modelled: Micros) -> None:
        pass


class UnspeakableError(Exception):
    def __str__(self) -> str:
        raise RuntimeError

    @classmethod
    def raise_(cls) -> object:
        raise cls


class Broken(dict[str, Value]):
    def items(self) -> NoReturn:
        raise RuntimeError


def fail() -> object:
    raise KeyError("oh")


def hang() -> object:
    raise OverTimeError("1 s")


@pytest.mark.parametrize(
    ("answer", "line"),
    [
        (fail, "raised KeyError: 'oh'"),
        (hang, "took too long"),
        (lambda: 5, "returned a int"),
        (lambda: Content({1: 2}), "no event can have"),  # type: ignore[dict-item]
        (lambda: Content({"a": [1]}), "no event can have"),  # type: ignore[dict-item]
        (lambda: Content({"a": float("nan")}), "finite"),
        (lambda: Content({}, "text"), "wrong types"),  # type: ignore[arg-type]
        (lambda: Content({}, bytes(100_000)), "100000 octets"),
        (lambda: sys.exit(3), "raised SystemExit: 3"),
        (UnspeakableError.raise_, "cannot say why"),
        (lambda: event(), "returned a Event, which is no content"),
        (lambda: ({"a": 1}, b"", "", ""), "returned a tuple"),
        (lambda: Content([("a", 1)]), "wrong types"),  # type: ignore[arg-type]
        (lambda: Content({}, b"", topic=5), "wrong types"),  # type: ignore[arg-type]
        (lambda: Content({}, bytearray(3)), "wrong types"),  # type: ignore[arg-type]
        (lambda: Content({"a": 1j}), "no event can have"),  # type: ignore[dict-item]
        (lambda: Content({"a": 2**64}), "more than 64 bits"),
        (lambda: Content({"a": float("inf")}), "finite"),
        (lambda: Content({"a" * 200: 1}), "200 characters"),
        (lambda: Content({"a": "x" * 5_000}), "5000 characters"),
        (lambda: Content({"a": "\ud800"}), "surrogate"),
        (lambda: Content({str(n): 1 for n in range(300)}), "300"),
        (lambda: Content({str(n): "x" * 4_000 for n in range(20)}), "in all"),
        (lambda: Content({}, b"", "x" * 5_000), "5000 characters"),
        (lambda: Content(Broken()), "raised RuntimeError when read"),
    ],
)
def test_a_modulator_that_misbehaves_is_an_error_of_its_own(answer: Callable[[], object], line: str) -> None:
    with pytest.raises(ModulatorError, match=line):
        Guard(Counting()).run(Wild(answer), event())


def test_values_of_other_libraries_become_plain_ones() -> None:
    """numpy's float64 is a float, but no encoder knows it: it would have stopped the broker."""
    made = Content({"mean": np.float64(1.5), "name": np.str_("x")}, np.bytes_(b"abc"))
    ran = Guard(Counting()).run(Wild(lambda: made), event())
    assert ran.content is not None
    types = {type(ran.content.attributes["mean"]), type(ran.content.attributes["name"])}
    assert types == {float, str} and type(ran.content.payload) is bytes
    assert msgspec.msgpack.encode(modulated(event(), ran.content))


@pytest.mark.parametrize("method", ["cost", "state", "restore"])
@pytest.mark.parametrize("answer", [fail, hang, lambda: sys.exit(1)])
def test_no_method_of_a_modulator_is_trusted(method: str, answer: Callable[[], object]) -> None:
    modulator = Wild(lambda: None)
    setattr(modulator, method, lambda *arguments: answer())
    guard = Guard(Counting())
    calls: dict[str, Callable[[], object]] = {
        "cost": lambda: guard.run(modulator, event()),
        "state": lambda: guard.state_of(modulator),
        "restore": lambda: guard.restore(modulator, b""),
    }
    with pytest.raises(ModulatorError):
        calls[method]()


@pytest.mark.parametrize("cost", ["much", 1.5, None])
def test_a_cost_that_is_no_number_is_an_error(cost: object) -> None:
    modulator = Wild(lambda: None)
    modulator.cost = lambda event: cost  # type: ignore[method-assign, assignment, return-value]
    with pytest.raises(ModulatorError, match="its cost is a"):
        Guard(Counting()).run(modulator, event())


def test_a_modulator_that_cannot_be_made_is_an_error_of_its_owner() -> None:
    with pytest.raises(ModulatorError, match="raised KeyError when it was made"):
        Guard(Counting()).make(fail)  # type: ignore[arg-type]


def test_a_state_that_cannot_travel_is_an_error_of_its_owner() -> None:
    guard = Guard(Counting())
    for answer in (fail, lambda: "text", lambda: bytes(50_000)):
        with pytest.raises(ModulatorError):
            guard.state_of(Wild(answer))
    with pytest.raises(ModulatorError, match="KeyError"):
        guard.restore(Wild(fail), b"")
    assert guard.state_of(Wild(lambda: b"fine")) == b"fine"


def test_the_consumer_sees_the_content_under_the_events_own_identity() -> None:
    original = event(7, level=1, payload=b"long")
    ran = Guard(Counting()).run(make(ModulatorSpec.of("projection", {"attributes": []})), original)
    assert ran.content is not None and ran.took == 6
    seen = modulated(original, ran.content)
    assert seen.id == original.id and seen.attributes == {} and seen.payload == b""

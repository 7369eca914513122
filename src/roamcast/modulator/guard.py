"""Running a consumer's function without trusting it.

Whatever a modulator does (raise, hang, return invalid values, grow without bound), in whichever method, the
broker and the other consumers go on: the answer is either content that can be an event, or a
`ModulatorError` for its owner. The runtime decides how long it took and whether that was too long
(`Meter`): in `sim` time is a quantity of the model, live it is processor time.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol, TypeVar

from roamcast.errors import EventError, RoamcastError
from roamcast.event import PAYLOAD_BYTES_MAX, Event, Publication, Value
from roamcast.modulator.base import STATE_BYTES_MAX, Content, Modulator, ModulatorError
from roamcast.units import Micros

PROBLEM_LENGTH_MAX = 200  # of what an exception says

Answer = TypeVar("Answer")


class OverTimeError(RoamcastError):
    """The meter's limit passed while the function ran."""


class Meter(Protocol):
    """How a runtime times a function, and stops one that does not end."""

    def run(self, call: Callable[[], Answer], modelled: Micros) -> tuple[Answer, Micros]:
        """The answer and how long it took; OverTimeError if it took too long. `modelled` is what the
        function itself says it costs."""
        ...

    def check(self, modelled: Micros) -> None:
        """OverTimeError if a function that says it costs this would take too long: where time is modelled,
        that is known before anyone has to wait for it."""
        ...


class Ran(NamedTuple):
    content: Content | None
    took: Micros


class Guard:
    """ModulatorError if a modulator misbehaves; the caller then does not run it again."""

    def __init__(self, meter: Meter) -> None:
        self._meter = meter

    def make(self, make: Callable[[], Modulator]) -> Modulator:
        return self._call(make, "when it was made")[0]

    def cost(self, modulator: Modulator, event: Event) -> Micros:
        cost = self._call(lambda: modulator.cost(event), "when asked for its cost")[0]
        if not isinstance(cost, int):
            raise ModulatorError(f"its cost is a {type(cost).__name__}, which is no number of microseconds")
        try:
            self._meter.check(int(cost))
        except OverTimeError as error:
            raise ModulatorError(f"took too long: {error}") from None
        return max(int(cost), 0)

    def run(self, modulator: Modulator, event: Event) -> Ran:
        cost = self.cost(modulator, event)
        content, took = self._call(lambda: modulator.process(event), "", cost)
        return Ran(None if content is None else _checked(content), took)

    def state_of(self, modulator: Modulator) -> bytes:
        state = self._call(modulator.state, "when asked for its state")[0]
        if not isinstance(state, bytes) or len(state) > STATE_BYTES_MAX:
            raise ModulatorError(f"its state is no octets, or more than {STATE_BYTES_MAX} of them")
        return bytes(state)

    def restore(self, modulator: Modulator, state: bytes) -> None:
        self._call(lambda: modulator.restore(state), "when given its state")

    def _call(self, call: Callable[[], Answer], when: str, cost: Micros = 0) -> tuple[Answer, Micros]:
        where = f" {when}" if when else ""
        try:
            return self._meter.run(call, cost)
        except OverTimeError as error:
            raise ModulatorError(f"took too long{where}: {error}") from None
        except KeyboardInterrupt:
            raise  # from the user, not from the function
        except BaseException as error:  # a consumer's code may raise anything, SystemExit too
            raise ModulatorError(f"raised {type(error).__name__}{where}: {_words(error)}") from None


def _words(error: BaseException) -> str:
    try:
        return str(error)[:PROBLEM_LENGTH_MAX]
    except Exception:
        return "and cannot say why"


def _checked(content: object) -> Content:
    """The same with values of the plain types, the only ones that can be encoded. Refuses anything that no
    event can carry."""
    if not isinstance(content, Content):
        raise ModulatorError(f"returned a {type(content).__name__}, which is no content")
    attributes, payload, topic, type_ = content
    texts = isinstance(topic, str) and isinstance(type_, str)
    if not texts or not isinstance(payload, bytes) or not isinstance(attributes, Mapping):
        raise ModulatorError("returned content whose parts have the wrong types")
    try:
        plain = {_plain_name(name): _plain(name, value) for name, value in attributes.items()}
        checked = Content(plain, bytes(payload), str(topic), str(type_))
        if Publication(plain, checked.payload, checked.topic, checked.type).is_large:
            # A product takes the place of an event in one letter; chunks are for publications.
            size = len(checked.payload)
            raise EventError("payload", f"has {size} octets; at most {PAYLOAD_BYTES_MAX} are allowed")
    except EventError as error:
        raise ModulatorError(f"returned content that can be no event: {error}") from None
    except ModulatorError:
        raise
    except Exception as error:  # raised by a mapping or number class of the consumer
        raise ModulatorError(f"returned content that raised {type(error).__name__} when read") from None
    return checked


def _plain_name(name: object) -> str:
    if not isinstance(name, str):
        raise ModulatorError(f"returned an attribute that no event can have: {str(name)[:40]!r}")
    return str(name)


def _plain(name: str, value: object) -> Value:
    """The value as a plain type: numpy's numbers are subclasses of `float` that no encoder knows."""
    match value:
        case None | bool():
            return value
        case int():
            return int(value)
        case float():
            return float(value)
        case str():
            return str(value)
    raise ModulatorError(f"returned an attribute that no event can have: {str(name)[:40]!r}")

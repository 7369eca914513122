"""Running a consumer's function without trusting it.

Whatever a modulator does (raise, hang, return rubbish, grow without bound), the broker and the other
consumers go on: the answer is either content that can be an event, or a `ModulatorError` for its owner.
How long it took, and when it has taken too long, is the runtime's business (`Meter`): in `sim` time is a
quantity of the model, live it is the processor's.
"""

from collections.abc import Callable
from typing import NamedTuple, Protocol

from roamcast.errors import EventError, RoamcastError
from roamcast.event import Event, check_content
from roamcast.modulator.base import STATE_BYTES_MAX, Content, Modulator, ModulatorError
from roamcast.units import Micros


class OverTimeError(RoamcastError):
    """The meter's limit passed while the function ran."""


class Meter(Protocol):
    """How a runtime times a function, and stops one that does not end."""

    def run(self, call: Callable[[], Content | None], modelled: Micros) -> tuple[Content | None, Micros]:
        """The answer and how long it took; OverTimeError if it took too long. `modelled` is what the
        function itself says it costs."""
        ...


class Ran(NamedTuple):
    content: Content | None
    took: Micros


class Guard:
    def __init__(self, meter: Meter) -> None:
        self._meter = meter

    def run(self, modulator: Modulator, event: Event) -> Ran:
        """ModulatorError if it misbehaves; the caller then lets it run no more."""
        try:
            content, took = self._meter.run(lambda: modulator.process(event), modulator.cost(event))
        except OverTimeError as error:
            raise ModulatorError(f"took too long: {error}") from None
        except Exception as error:  # a consumer's code may raise anything
            raise ModulatorError(f"raised {type(error).__name__}: {str(error)[:200]}") from None
        if content is not None:
            _check(content)
        return Ran(content, took)

    def state_of(self, modulator: Modulator) -> bytes:
        try:
            state = modulator.state()
        except Exception as error:
            raise ModulatorError(f"raised {type(error).__name__} when asked for its state") from None
        if not isinstance(state, bytes) or len(state) > STATE_BYTES_MAX:
            raise ModulatorError(f"its state is no octets, or more than {STATE_BYTES_MAX} of them")
        return state

    def restore(self, modulator: Modulator, state: bytes) -> None:
        try:
            modulator.restore(state)
        except Exception as error:
            raise ModulatorError(f"raised {type(error).__name__} when given its state: {error}") from None


def _check(content: object) -> None:
    """Rubbish is anything that no event could carry."""
    if not isinstance(content, Content):
        raise ModulatorError(f"returned a {type(content).__name__}, which is no content")
    attributes, payload, topic, type_ = content
    texts = isinstance(topic, str) and isinstance(type_, str)
    if not texts or not isinstance(payload, bytes) or not isinstance(attributes, dict):
        raise ModulatorError("returned content whose parts have the wrong types")
    for name, value in attributes.items():
        if not isinstance(name, str) or not isinstance(value, bool | int | float | str | None):
            raise ModulatorError(f"returned an attribute that no event can have: {str(name)[:40]!r}")
    try:
        check_content(attributes, payload, topic, type_, ())
    except EventError as error:
        raise ModulatorError(f"returned content that can be no event: {error}") from None

"""Events that cannot be delivered now (section 2.3, future work): how long are they kept?

`[strategy.options] discard` names the function that decides. An application adds its own before its node
starts: `DISCARDS["mine"] = lambda event, age, options: ...`, true for an event that shall wait no longer. It
is asked about events that wait for a node out of reach, not about those on their way.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from roamcast.event import Event, EventClass
from roamcast.units import Micros, micros

if TYPE_CHECKING:
    from roamcast.strategy.opportunistic.options import OpportunisticOptions

Discard: TypeAlias = "Callable[[Event, Micros, OpportunisticOptions], bool]"


def _by_lifetime(event: Event, age: Micros, options: "OpportunisticOptions") -> bool:
    """Memorized events wait for their lifetime, real-time ones for `keep_realtime`."""
    if event.event_class is EventClass.MEMORIZED:
        return age >= event.lifetime
    return age >= micros(options.keep_realtime)


def _memorized_only(event: Event, age: Micros, options: "OpportunisticOptions") -> bool:
    return event.event_class is not EventClass.MEMORIZED or age >= event.lifetime


DISCARDS: dict[str, Discard] = {"lifetime": _by_lifetime, "realtime": _memorized_only}


def is_over(event: Event, age: Micros, options: "OpportunisticOptions") -> bool:
    """Whether an event that waits for its way to open shall wait no longer.

    A memorized event never outlives its lifetime, whatever the application's function says; where that
    function raises, the event waits as if there were none.
    """
    if event.event_class is EventClass.MEMORIZED and age >= event.lifetime:
        return True
    try:
        return bool(DISCARDS[options.discard](event, age, options))
    except Exception:  # an application's code may raise anything; its node goes on
        return _by_lifetime(event, age, options)

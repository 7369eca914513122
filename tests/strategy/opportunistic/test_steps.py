"""A link cut at each message of a handoff: whatever it is, nothing is lost, doubled or out of order."""

import pytest
from tests.strategy.opportunistic.schedules import Journal
from tests.strategy.opportunistic.steps import (
    CONSUMER,
    DESTINATION,
    SOURCE,
    STEPS,
    THIRD,
    Handover,
    Observed,
)

from roamcast.strategy.opportunistic.messages import Accepted, CarryMessage, Detour, MovedMessage
from roamcast.units import SECOND, Micros, NodeId

pytestmark = pytest.mark.long


def cut(victim: NodeId, step: type, when: str, for_: Micros) -> Observed:
    handover = Handover(home_timeout=60.0)
    handover.at(step, when, victim, lambda: handover.cut_off(victim, for_))
    return handover.run(60.0)


def test_a_handoff_without_any_accident() -> None:
    handover = Handover()
    observed = handover.run(40.0)
    assert observed.is_perfect() and observed.outcomes == ["moved"] and handover.home() == DESTINATION


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("victim", [SOURCE, DESTINATION, THIRD, CONSUMER])
def test_a_party_that_is_cut_off_at_any_step_costs_nothing(victim: NodeId, step: type) -> None:
    """For 8 s, more than twice the handoff's patience. `make torture` plays short cuts and other instants."""
    observed = cut(victim, step, "handled", 8 * SECOND)
    assert observed.happened is not None, "the step did not come"
    assert observed.is_perfect(), (observed.lost(), observed.doubled(), observed.reordered())


def test_what_becomes_of_it() -> None:
    """Not accepted: aborted. Switching without the destination: rolled back. Once moved, it stays moved."""
    assert cut(DESTINATION, Accepted, "written", 8 * SECOND).outcomes == ["aborted"]
    assert cut(DESTINATION, Detour, "handled", 8 * SECOND).outcomes == ["rolled_back"]
    assert cut(DESTINATION, MovedMessage, "written", 8 * SECOND).outcomes == ["moved"]
    assert cut(THIRD, Detour, "written", 8 * SECOND).outcomes == ["moved"]  # its way stays open
    assert cut(DESTINATION, Detour, "handled", SECOND).outcomes == ["moved"]  # within the patience


def test_a_second_copy_of_an_event_handled_before_the_move_is_known_after_it() -> None:
    """Schedules do not make one: without a crash all copies come in order. The consumer would not see it
    either, but its modulator would."""
    handover = Handover()
    handover.run(40.0)
    brokerage = handover.strategy(DESTINATION).broker
    assert brokerage is not None
    client = brokerage.homes.clients[CONSUMER]
    (journal,) = [modulator for modulator in client.modulators.values() if isinstance(modulator, Journal)]
    before = dict(journal.lines)
    old = next(d.event for d in handover._got if not d.modulated and d.event.publisher == 6)
    handover.strategy(THIRD)._streams.write(
        DESTINATION, CarryMessage(old, 0, 1, CONSUMER, True, 0, False, 0, 0)
    )
    observed = handover.run(45.0)
    assert journal.lines == before and observed.is_perfect()

"""Brokers that crash: what is lost is what they alone had, as docs/protocols/opportunistic.md says, and never
more."""

import pytest
from tests.strategy.opportunistic.crashes import play_crashes
from tests.strategy.opportunistic.steps import (
    CONSUMER,
    DESTINATION,
    SOURCE,
    STEPS,
    THIRD,
    Handover,
)

from roamcast.event import EventId
from roamcast.strategy.opportunistic.messages import MovedMessage
from roamcast.units import SECOND, Micros, NodeId

pytestmark = pytest.mark.long


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize(
    ("victim", "restart_after"),
    [(SOURCE, None), (SOURCE, SECOND), (DESTINATION, None), (DESTINATION, SECOND), (THIRD, SECOND)],
)
def test_a_broker_that_crashes_at_any_step_loses_only_what_it_had(
    victim: NodeId, step: type, restart_after: Micros | None
) -> None:
    handover = Handover()
    handover.at(step, "handled", victim, lambda: handover.crash(victim, restart_after))
    observed = handover.run(70.0)
    assert observed.happened is not None, "the step did not come"
    assert observed.lost() <= observed.at_victim
    assert len(observed.lost()) <= 4, "little is in a broker's hands while nothing waits in it"
    assert observed.doubled() == 0
    # The consumer is served in the end, by a broker that is there.
    home = handover.home()
    assert home is not None and handover.simulation.nodes[home] is not None
    brokerage = handover.strategy(home).broker
    assert brokerage is not None and CONSUMER in brokerage.homes.clients


def test_a_destination_that_dies_with_the_client_leaves_the_source_all_that_it_never_confirmed() -> None:
    """The client comes back by itself; its modulator goes on where it was, without a gap."""
    handover = Handover()
    handover.at(MovedMessage, "written", DESTINATION, lambda: handover.crash(DESTINATION, None))
    observed = handover.run(70.0)
    assert observed.is_perfect() and handover.home() == SOURCE


@pytest.mark.parametrize("share_frames", [True, False])
def test_what_waits_in_a_home_broker_that_crashes_is_asked_for_again(share_frames: bool) -> None:
    """2 ms of work take 100 ms there and 22 events come per second, so a queue has grown in a second. The
    next home reads on where the consumer was served last, and producers still have what they published."""
    handover = Handover(capacities={str(SOURCE): 0.02}, share_frames=share_frames)
    handover._victim = SOURCE
    handover.simulation.engine.at(19 * SECOND, lambda _: handover.crash(SOURCE, None), None)
    waiting: set[EventId] = set()

    def look(_: None) -> None:
        handover._happened = handover.simulation.engine.now
        got = {d.event.id for d in handover._got if d.modulated}
        waiting.update(handover._at_victim - got)

    handover.simulation.engine.at(19 * SECOND - 1, look, None)
    observed = handover.run(70.0)
    assert len(waiting) > 5, "else the test proves nothing"
    assert observed.lost() == set() and observed.doubled() == observed.reordered() == 0


@pytest.mark.parametrize("seed", range(4))
def test_random_crashes_over_found_routes_and_a_lossy_radio(seed: int) -> None:
    outcome = play_crashes(seed)
    assert not outcome.problems, f"crashes {seed}: {outcome.problems[0]}"
    assert outcome.deliveries > 0


@pytest.mark.parametrize("seed", [1021, 50_279])
def test_crashes_that_once_lost_more(seed: int) -> None:
    """1021: what came while a restarted home knew nobody was not kept for the producer's own modulator.
    50279: deliveries to a client that came back were numbered twice, and it waited for the first number."""
    assert play_crashes(seed).problems == []

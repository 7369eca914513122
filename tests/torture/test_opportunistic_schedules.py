"""Ten thousand random schedules of handoffs, and everything else that is too long for every day.

A failure names its seed. About an hour on one core, half of it on two.
"""

import pytest
from tests.strategy.opportunistic.crashes import play_crashes
from tests.strategy.opportunistic.schedules import play
from tests.strategy.opportunistic.steps import (
    CONSUMER,
    DESTINATION,
    PRODUCERS,
    SOURCE,
    STEPS,
    THIRD,
    Handover,
)

from roamcast.units import SECOND, Micros, NodeId

SCHEDULES = 10_000
LOOSE = 1_000
CRASHES = 1_000
BATCH = 50


@pytest.mark.parametrize("first", range(0, SCHEDULES, BATCH))
def test_random_schedules_lose_double_and_reorder_nothing(first: int) -> None:
    failures: list[str] = []
    late = 0
    for seed in range(first, first + BATCH):
        outcome = play(seed)
        late += outcome.late
        failures.extend(f"schedule {seed}: {problem}" for problem in outcome.problems)
    assert not failures, "\n".join(failures)
    assert late <= BATCH // 10  # consumers that are not judged


@pytest.mark.parametrize("first", range(0, LOOSE, BATCH))
def test_loose_handoffs_lose_and_double_nothing(first: int) -> None:
    failures: list[str] = []
    for seed in range(first, first + BATCH):
        failures.extend(f"schedule {seed}: {problem}" for problem in play(seed, handoff="loose").problems)
    assert not failures, "\n".join(failures)


@pytest.mark.parametrize("first", range(0, CRASHES, BATCH))
def test_random_crashes_lose_only_what_crashed_brokers_had(first: int) -> None:
    failures: list[str] = []
    for seed in range(first, first + BATCH):
        failures.extend(f"crashes {seed}: {problem}" for problem in play_crashes(seed).problems)
    assert not failures, "\n".join(failures)


@pytest.mark.parametrize("for_", [SECOND // 5, SECOND, 4 * SECOND, 20 * SECOND])
@pytest.mark.parametrize("when", ["written", "handled"])
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("victim", [SOURCE, DESTINATION, THIRD, CONSUMER, *PRODUCERS])
def test_a_party_that_is_cut_off_at_any_step_costs_nothing(
    victim: NodeId, step: type, when: str, for_: Micros
) -> None:
    handover = Handover(home_timeout=60.0)
    handover.at(step, when, victim, lambda: handover.cut_off(victim, for_))
    observed = handover.run(90.0)
    assert observed.happened is not None and observed.is_perfect()


@pytest.mark.parametrize("restart_after", [None, SECOND // 10, SECOND, 5 * SECOND, 20 * SECOND])
@pytest.mark.parametrize("when", ["written", "handled"])
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("victim", [SOURCE, DESTINATION, THIRD])
def test_a_broker_that_crashes_at_any_step_loses_only_what_it_had(
    victim: NodeId, step: type, when: str, restart_after: Micros | None
) -> None:
    handover = Handover()
    handover.at(step, when, victim, lambda: handover.crash(victim, restart_after))
    observed = handover.run(120.0)
    assert observed.happened is not None
    assert observed.lost() <= observed.at_victim and len(observed.lost()) <= 4
    assert observed.doubled() == 0

"""Who is a broker."""

import pytest

from roamcast.strategy.chapar.brokers import TRANSITIONS, Role, elected


@pytest.mark.parametrize(
    ("relays", "available", "brokers"),
    [
        ([], [7], [7]),  # single-node status
        ([], [3, 1, 7], [1, 3]),  # a full mesh
        ([7], [3, 1, 7], [1, 7]),  # one relay and the lowest other
        ([1], [1, 3, 7], [1, 3]),  # the lowest is the relay already
        ([3, 7], [1, 3, 7], [3, 7]),  # relays alone
        ([3, 7, 9], [1, 3, 7, 9], [3, 7, 9]),
        ([3, 9], [1, 3, 7], [1, 3]),  # 9 is known as a relay but not available
    ],
)
def test_relays_are_brokers_and_the_lowest_fill_up_to_two(
    relays: list[int], available: list[int], brokers: list[int]
) -> None:
    assert elected(relays, available) == brokers


def test_a_broker_is_dismissed_before_it_leaves_and_can_be_appointed_at_any_time() -> None:
    assert {role for role, cause in TRANSITIONS if cause == "appointed"} == set(Role) - {Role.BROKER}
    assert {TRANSITIONS[role, cause] for role, cause in TRANSITIONS if cause == "appointed"} == {Role.BROKER}
    into_node = [(role, cause) for (role, cause), after in TRANSITIONS.items() if after is Role.NODE]
    assert into_node == [(Role.LEAVING, "checked out")]

"""Which deliveries count as right, whatever the runtime."""

from roamcast.broker.core import Delivery, Subscription
from roamcast.broker.judgement import is_right
from roamcast.event import Event
from roamcast.filter import Filter
from roamcast.modulator import ModulatorSpec

ME = 5
LEVELS = ModulatorSpec.of("projection", {"attributes": ["level"]})
STANDING = {
    1: Subscription(1, Filter.sql("level > 3")),
    2: Subscription(2, Filter.sql("zone = 'north'"), modulator=LEVELS),
}
HIGH = Event(1, 1, {"level": 5})
LOW = Event(1, 2, {"level": 1})


def test_an_event_is_right_for_a_subscription_that_stands_and_matches() -> None:
    assert is_right(Delivery(HIGH, (1,), 1), ME, STANDING)
    assert not is_right(Delivery(LOW, (1,), 1), ME, STANDING)
    assert not is_right(Delivery(HIGH, (), 1), ME, STANDING)  # delivered for nothing
    assert not is_right(Delivery(HIGH, (7,), 1), ME, STANDING)  # for one that does not stand


def test_a_product_is_right_while_its_subscription_stands_whatever_it_looks_like() -> None:
    assert is_right(Delivery(LOW, (2,), 1, modulated=True), ME, STANDING)
    assert not is_right(Delivery(LOW, (7,), 1, modulated=True), ME, STANDING)


def test_who_asked_for_products_is_not_owed_the_event_itself() -> None:
    assert not is_right(Delivery(Event(1, 1, {"zone": "north"}), (2,), 1), ME, STANDING)


def test_a_named_destination_needs_no_subscription_and_others_of_its_node_need_multimode() -> None:
    assert is_right(Delivery(Event(1, 1, destinations=(ME,)), (), 1), ME, {})
    only_seven = Event(1, 1, {"level": 5}, destinations=(7,))
    assert not is_right(Delivery(only_seven, (1,), 1), ME, STANDING)
    too = Event(1, 1, {"level": 5}, destinations=(7,), multimode=True)
    assert is_right(Delivery(too, (1,), 1), ME, STANDING)

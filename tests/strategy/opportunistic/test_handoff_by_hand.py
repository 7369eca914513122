"""The eight steps at each of the two brokers, message by message; and what goes wrong between them."""

import pytest
from tests.strategy.opportunistic.schedules import JOURNAL
from tests.strategy.opportunistic.station import COUNTING, PLAIN, WORK, Near, Station

from roamcast.modulator import ModulatorSpec
from roamcast.strategy.opportunistic.board import BROKER, CLIENT
from roamcast.strategy.opportunistic.broker import answer_for_no_broker
from roamcast.strategy.opportunistic.consumers import first_version
from roamcast.strategy.opportunistic.messages import (
    Accepted,
    BrokerRow,
    Cancelled,
    CarryMessage,
    ClientRow,
    Deliver,
    Detour,
    Handoff,
    Interest,
    MovedDelivery,
    MovedMessage,
    MovedState,
    NewHome,
    StreamMessage,
    Switched,
    Taken,
)
from roamcast.trace import HandedOff
from roamcast.units import NodeId, micros

CLIENT_A, SOURCE, DESTINATION, SUPPLIER, THIRD, PRODUCER = 7, 1, 2, 3, 4, 50


def kinds(messages: list[tuple[NodeId, StreamMessage]]) -> list[tuple[NodeId, str]]:
    return [(to, type(message).__name__) for to, message in messages]


def serving(**options: float) -> Station:
    """A source with one client, whose modulator has read three events: one product, one event behind it."""
    station = Station(SOURCE, **options)
    for broker in (DESTINATION, SUPPLIER):
        station.hear_row(BROKER, broker, 1, BrokerRow((), boot=1))
    station.hear_row(CLIENT, PRODUCER, 1, ClientRow(SUPPLIER, 1, True, ()))
    station.attach_client(CLIENT_A, PLAIN, COUNTING)
    for sequence, level in enumerate((3, 4, 10)):
        station.level(CLIENT_A, PRODUCER, sequence, level)
    return station


def asked(station: Station) -> Handoff:
    station.streams.confirmed()
    assert station.broker.clients.relocate(CLIENT_A, DESTINATION)
    ((to, message),) = station.streams.written
    assert to == DESTINATION and isinstance(message, Handoff)
    return message


def outcomes(station: Station) -> list[str]:
    return [record.outcome for record in station.host.records if isinstance(record, HandedOff)]


def luggage() -> list[StreamMessage]:
    """What a source sends in step 7, and the product that its client has not confirmed."""
    station = serving()
    made = [message for message in station.streams.written if isinstance(message[1], Deliver)]
    handoff = asked(station)
    station.hear(DESTINATION, Accepted(CLIENT_A, handoff.version))
    station.streams.confirmed()
    station.streams.written += made
    station.broker.on_message(SUPPLIER, Switched(CLIENT_A, handoff.version), 0)
    station.host.advance(WORK)
    return station.streams.to(DESTINATION)


def test_the_source_asks_has_producers_brokers_switch_and_gives_the_client_away() -> None:
    station = serving()
    handoff = asked(station)
    written = station.hear(DESTINATION, Accepted(CLIENT_A, handoff.version))
    assert written == [(SUPPLIER, Detour(CLIENT_A, handoff.version, DESTINATION, SOURCE))]
    written = station.hear(SUPPLIER, Switched(CLIENT_A, handoff.version))
    assert kinds(written) == [(DESTINATION, "MovedState"), (DESTINATION, "MovedMessage")]
    moved = written[-1][1]
    assert isinstance(moved, MovedMessage) and moved.cursors == (PRODUCER, 2) and moved.next_number == 1
    assert station.broker.homes.clients == {} and outcomes(station) == []
    station.hear(DESTINATION, Taken(CLIENT_A, handoff.version))
    assert outcomes(station) == ["moved"] and station.broker.handoffs.is_idle()


def test_the_homes_of_all_producers_are_asked_and_both_brokers_hear_that_they_have_switched() -> None:
    """Steps 3 and 4 to the message: of producer 51 the client has read nothing yet."""
    station = serving()
    station.hear_row(BROKER, THIRD, 1, BrokerRow((), boot=1))
    station.hear_row(CLIENT, PRODUCER + 1, 1, ClientRow(THIRD, 1, True, ()))
    station.hear_row(CLIENT, PRODUCER + 2, 1, ClientRow(5, 1, False, ()))  # it produces nothing
    handoff = asked(station)
    detour = Detour(CLIENT_A, handoff.version, DESTINATION, SOURCE)
    written = station.hear(DESTINATION, Accepted(CLIENT_A, handoff.version))
    assert written == [(SUPPLIER, detour), (THIRD, detour)]
    switched = Switched(CLIENT_A, handoff.version)
    assert station.hear(SUPPLIER, switched) == []  # it waits for the other
    assert kinds(station.hear(THIRD, switched))[-1] == (DESTINATION, "MovedMessage")
    supplier, destination = Station(SUPPLIER), Station(DESTINATION)
    assert supplier.hear(SOURCE, detour) == [(SOURCE, switched), (DESTINATION, switched)]
    destination.hear(SOURCE, handoff)
    assert destination.hear(SUPPLIER, switched) == []  # and goes on holding events back
    destination.level(CLIENT_A, PRODUCER, 3, 1)
    assert destination.streams.to(CLIENT_A) == [] and not destination.broker.handoffs.is_idle()


def test_a_home_that_no_way_leads_to_does_not_hold_a_handoff_up(monkeypatch: pytest.MonkeyPatch) -> None:
    station = serving()
    station.hear_row(CLIENT, PRODUCER + 1, 1, ClientRow(THIRD, 1, True, ()))
    monkeypatch.setattr(Near, "distance", lambda self, to: None if to == THIRD else 1)
    handoff = asked(station)
    written = station.hear(DESTINATION, Accepted(CLIENT_A, handoff.version))
    assert [to for to, _ in written] == [SUPPLIER]


def test_loose_the_client_is_given_away_at_once_and_nobody_is_asked() -> None:
    station = serving(handoff="loose")  # type: ignore[arg-type]
    station.streams.confirmed()
    assert station.broker.clients.relocate(CLIENT_A, DESTINATION)
    station.host.advance(WORK)
    assert kinds(station.streams.written) == [(DESTINATION, "MovedState"), (DESTINATION, "MovedMessage")]


def test_stateless_one_message_takes_the_client_and_its_modulators_begin_anew() -> None:
    station, destination = serving(handoff="stateless"), Station(DESTINATION)  # type: ignore[arg-type]
    station.streams.confirmed()
    assert station.broker.clients.relocate(CLIENT_A, DESTINATION)
    station.host.advance(WORK)
    ((to, moved),) = station.streams.written
    assert to == DESTINATION and isinstance(moved, MovedMessage)
    assert kinds(destination.hear(SOURCE, moved)) == [(SOURCE, "Taken"), (CLIENT_A, "NewHome")]
    for sequence in (3, 4):
        destination.level(CLIENT_A, PRODUCER, sequence, 20)
    (product,) = (one for one in destination.streams.to(CLIENT_A) if isinstance(one, Deliver))
    assert product.event.attributes["sum"] == 40.0  # nothing of the 10 that the source had read


def test_a_refusal_and_a_destination_that_does_not_answer_change_nothing() -> None:
    station = serving()
    handoff = asked(station)
    station.hear(DESTINATION, Accepted(CLIENT_A, handoff.version, "unknown modulator"))
    assert outcomes(station) == ["refused"] and CLIENT_A in station.broker.homes.clients
    later = asked(station)
    assert later.version > handoff.version
    station.host.advance(micros(10.1))
    assert station.streams.to(DESTINATION)[-1] == Cancelled(CLIENT_A, later.version)
    assert outcomes(station) == ["refused", "aborted"] and CLIENT_A in station.broker.homes.clients


def test_a_producers_broker_that_does_not_answer_does_not_stop_the_move() -> None:
    station = serving()
    handoff = asked(station)
    station.hear(DESTINATION, Accepted(CLIENT_A, handoff.version))
    station.host.advance(micros(10.1))
    assert isinstance(station.streams.to(DESTINATION)[-1], MovedMessage)


def test_a_destination_that_falls_silent_before_anything_moved_is_given_up() -> None:
    station = serving()
    handoff = asked(station)
    station.hear(DESTINATION, Accepted(CLIENT_A, handoff.version))
    station.streams.silent.add(DESTINATION)
    station.host.advance(micros(10.1))
    assert outcomes(station) == ["rolled_back"] and CLIENT_A in station.broker.homes.clients
    assert station.streams.to(SUPPLIER)[-1] == Detour(CLIENT_A, handoff.version + 1, SOURCE, SOURCE)


def test_a_move_that_waits_for_the_processor_and_is_given_up_leaves_the_client_with_its_reader() -> None:
    """An overloaded broker gives a client away, its work takes longer than the handoff may, and the
    destination falls silent: what came meanwhile, and what comes later, is read here."""
    station = Station(SOURCE)
    for broker in (DESTINATION, SUPPLIER):
        station.hear_row(BROKER, broker, 1, BrokerRow((), boot=1))
    station.hear_row(CLIENT, PRODUCER, 1, ClientRow(SUPPLIER, 1, True, ()))
    slow = Interest(1, PLAIN.filter, ModulatorSpec.of(JOURNAL, {"cost": 900_000}))
    station.attach_client(CLIENT_A, slow)
    for sequence in range(20):
        station.level(CLIENT_A, PRODUCER, sequence, 1)
    handoff = asked(station)
    station.hear(DESTINATION, Accepted(CLIENT_A, handoff.version))
    station.streams.silent.add(DESTINATION)
    station.hear(SUPPLIER, Switched(CLIENT_A, handoff.version))  # closed; the move waits for the processor
    station.level(CLIENT_A, PRODUCER, 20, 1)
    station.host.advance(micros(60.0))
    assert outcomes(station) == ["rolled_back"] and CLIENT_A in station.broker.homes.clients
    station.level(CLIENT_A, PRODUCER, 21, 1)
    station.host.advance(micros(60.0))
    made = [
        message.event.sequence for message in station.streams.to(CLIENT_A) if isinstance(message, Deliver)
    ]
    assert made[-3:] == [19, 20, 21]


def test_a_source_that_rolls_back_is_not_taken_for_a_home_that_the_client_chose() -> None:
    """The destination is a producer's home, too: it has switched, and holds events for the client back."""
    station = Station(DESTINATION)
    station.hear_row(BROKER, SOURCE, 1, BrokerRow((), boot=1))
    version = first_version(1) + 65
    station.hear_row(CLIENT, CLIENT_A, version - 64, ClientRow(SOURCE, 1, False, (COUNTING,)))
    station.hear(SOURCE, Handoff(CLIENT_A, version, 1, (COUNTING,)))
    station.hear(SOURCE, Detour(CLIENT_A, version, DESTINATION, SOURCE))
    station.level(CLIENT_A, PRODUCER, 0, 1)
    assert station.hear(SOURCE, Detour(CLIENT_A, version + 1, SOURCE, SOURCE)) == [
        (SOURCE, Switched(CLIENT_A, version + 1))
    ]
    ((to, carry),) = station.hear(SOURCE, Cancelled(CLIENT_A, version))
    assert to == SOURCE and isinstance(carry, CarryMessage) and carry.event.sequence == 0


def test_the_destination_goes_on_where_the_source_stopped() -> None:
    station = Station(DESTINATION)
    station.hear_row(BROKER, SOURCE, 1, BrokerRow((), boot=1))
    messages = luggage()
    moved = messages[-1]
    assert isinstance(moved, MovedMessage)
    handoff = Handoff(CLIENT_A, moved.version, 1, moved.interests)
    assert station.hear(SOURCE, handoff) == [(SOURCE, Accepted(CLIENT_A, moved.version, "", 0))]
    station.level(CLIENT_A, PRODUCER, 3, 20)  # before the client: it waits
    for message in messages[:-1]:
        assert station.hear(SOURCE, message) == []
    written = station.hear(SOURCE, moved)
    assert (SOURCE, Taken(CLIENT_A, moved.version)) in written
    to_client = [message for to, message in written if to == CLIENT_A]
    assert to_client[0] == NewHome(1, moved.version)
    products = [message for message in to_client if isinstance(message, Deliver)]
    # The source's product that was not confirmed, then the window that 10 had begun.
    assert [(one.number, one.event.attributes["sum"]) for one in products] == [(0, 7.0), (1, 30.0)]
    assert station.hear(SOURCE, moved) == [(SOURCE, Taken(CLIENT_A, moved.version))]  # a second copy


def test_a_client_whose_modulator_is_unknown_here_is_refused() -> None:
    station = Station(DESTINATION)
    unknown = Interest(1, PLAIN.filter, ModulatorSpec("nowhere"))
    ((_, answer),) = station.hear(SOURCE, Handoff(CLIENT_A, 100, 1, (unknown,)))
    assert isinstance(answer, Accepted) and answer.problem == "unknown modulator"


# A client that chooses another home by itself.


def chosen(**options: float) -> Station:
    station = Station(DESTINATION, **options)
    station.hear_row(BROKER, SOURCE, 1, BrokerRow((), boot=1))
    station.attach_client(CLIENT_A, PLAIN, COUNTING, generation=2, before=SOURCE)
    return station


def test_the_chosen_home_asks_the_one_that_was_given_up_and_begins_anew_if_that_has_nothing() -> None:
    station = chosen()
    version = first_version(2) + 1
    assert station.streams.written == [(SOURCE, Detour(CLIENT_A, version, DESTINATION, DESTINATION))]
    assert station.broker.homes.clients == {}
    station.hear(SOURCE, Switched(CLIENT_A, version))
    assert station.broker.homes.clients[CLIENT_A].generation == 2


def test_the_chosen_home_begins_anew_if_there_is_no_answer() -> None:
    station = chosen()
    station.host.advance(micros(19.9))
    assert station.broker.homes.clients == {}
    station.host.advance(micros(0.2))
    assert CLIENT_A in station.broker.homes.clients


def test_a_client_without_state_is_served_at_once() -> None:
    station = Station(DESTINATION)
    station.hear_row(BROKER, SOURCE, 1, BrokerRow((), boot=1))
    stateless = Interest(1, PLAIN.filter, ModulatorSpec.of("projection", {"attributes": ["level"]}))
    station.attach_client(CLIENT_A, PLAIN, stateless, generation=2, before=SOURCE)
    assert CLIENT_A in station.broker.homes.clients


def test_the_home_that_was_given_up_sends_the_modulators_and_what_the_client_has_not_got() -> None:
    source, chosen_home = serving(), chosen()
    ((_, claim),) = chosen_home.streams.confirmed()
    source.broker.on_message(DESTINATION, claim, 0)
    source.host.advance(WORK)
    messages = source.streams.to(DESTINATION)
    assert [type(message) for message in messages] == [MovedDelivery, MovedState, MovedMessage]
    for message in messages:
        chosen_home.hear(SOURCE, message)
    chosen_home.level(CLIENT_A, PRODUCER, 3, 20)
    products = [message for message in chosen_home.streams.to(CLIENT_A) if isinstance(message, Deliver)]
    sums = [(one.generation, one.number, one.event.attributes["sum"]) for one in products]
    assert sums == [(2, 0, 7.0), (2, 1, 30.0)]


def test_a_broker_that_handed_the_client_on_passes_the_question_on() -> None:
    station = serving()
    handoff = asked(station)
    station.hear(DESTINATION, Accepted(CLIENT_A, handoff.version))
    station.hear(SUPPLIER, Switched(CLIENT_A, handoff.version))
    station.hear(DESTINATION, Taken(CLIENT_A, handoff.version))
    claim = Detour(CLIENT_A, first_version(2) + 1, SUPPLIER, SUPPLIER)
    assert station.hear(SUPPLIER, claim) == [(DESTINATION, claim)]


def test_a_node_that_is_a_broker_no_more_leads_on_to_whom_it_handed_a_client() -> None:
    """Schedule 50096: the client heard of the end first, and chose a third broker, which asks here."""
    station = serving()
    handoff = asked(station)
    station.hear(DESTINATION, Accepted(CLIENT_A, handoff.version))
    station.hear(SUPPLIER, Switched(CLIENT_A, handoff.version))
    station.hear(DESTINATION, Taken(CLIENT_A, handoff.version))
    claim = Detour(CLIENT_A, first_version(2) + 1, THIRD, THIRD)
    station.streams.confirmed()
    answer_for_no_broker(station._shared, THIRD, claim)
    assert station.streams.confirmed() == [(DESTINATION, claim)]
    answer_for_no_broker(station._shared, THIRD, claim)  # a second copy
    assert station.streams.confirmed() == [(THIRD, Switched(CLIENT_A, claim.version))]


def test_a_broker_asks_a_home_that_has_ended_for_what_it_knew_of_the_client() -> None:
    station = Station(THIRD)
    station.hear_row(BROKER, SOURCE, 1, BrokerRow((), boot=1, is_over=True))
    station.attach_client(CLIENT_A, COUNTING, generation=2, before=SOURCE)
    claim = Detour(CLIENT_A, first_version(2) + 1, THIRD, THIRD)
    assert station.streams.to(SOURCE) == [claim] and station.broker.homes.clients == {}
    station.hear(SOURCE, Switched(CLIENT_A, claim.version))  # it knows nothing
    assert list(station.broker.homes.clients) == [CLIENT_A]

"""A broker's clients: who is at home here, what is said to them, and what a forged word does."""

from tests.strategy.opportunistic.station import COUNTING, PLAIN, Station

from roamcast.modulator import ModulatorSpec
from roamcast.strategy.opportunistic.board import CLIENT
from roamcast.strategy.opportunistic.consumers import first_version
from roamcast.strategy.opportunistic.messages import (
    ClientRow,
    Deliver,
    Here,
    Interest,
    ModulatorFailed,
    NotHome,
    Salvaged,
)

CLIENT_A, CLIENT_B, OTHER = 7, 8, 2


def test_a_client_that_attaches_is_entered_and_all_are_told() -> None:
    station = Station()
    station.attach_client(CLIENT_A, PLAIN)
    entry = station.board.find(CLIENT, CLIENT_A)
    assert entry is not None and entry.content == ClientRow(1, 1, False, (PLAIN,))
    assert list(station.broker.homes.clients) == [CLIENT_A]


def test_who_is_not_at_home_here_is_told_so_once_it_speaks() -> None:
    station = Station()
    assert station.hear(CLIENT_A, Here(1, 1, False)) == [(CLIENT_A, NotHome(1))]
    station.attach_client(CLIENT_A, PLAIN)
    assert station.hear(CLIENT_A, Here(1, 1, False)) == []


def test_a_modulator_s_products_are_numbered_from_0_in_each_generation() -> None:
    station = Station()
    station.attach_client(CLIENT_A, COUNTING)
    for sequence in range(4):
        station.level(CLIENT_A, 50, sequence, 1)
    made = [message for message in station.streams.to(CLIENT_A) if isinstance(message, Deliver)]
    assert [message.number for message in made] == [0, 1]
    station.streams.confirmed()
    station.attach_client(CLIENT_A, COUNTING, generation=2)  # it lost sight of us
    station.level(CLIENT_A, 50, 4, 1)
    station.level(CLIENT_A, 50, 5, 1)
    (again,) = (message for message in station.streams.to(CLIENT_A) if isinstance(message, Deliver))
    assert (again.generation, again.number) == (2, 0)


def test_what_the_client_had_not_confirmed_comes_first_in_the_next_generation() -> None:
    station = Station()
    station.attach_client(CLIENT_A, COUNTING)
    for sequence in range(2):
        station.level(CLIENT_A, 50, sequence, 1)
    station.attach_client(CLIENT_A, COUNTING, generation=2)
    made = [message for message in station.streams.to(CLIENT_A) if isinstance(message, Deliver)]
    assert [(message.generation, message.number, message.event.sequence) for message in made] == [(2, 0, 1)]


def test_a_client_that_chose_another_home_is_let_go_and_its_products_follow() -> None:
    station = Station()
    station.attach_client(CLIENT_A, COUNTING)
    for sequence in range(2):
        station.level(CLIENT_A, 50, sequence, 1)
    station.hear_row(CLIENT, CLIENT_A, first_version(2) + 1, ClientRow(OTHER, 1, False, (COUNTING,)))
    assert station.broker.homes.clients == {}
    (salvaged,) = station.streams.to(OTHER)
    assert isinstance(salvaged, Salvaged) and salvaged.delivery.event.sequence == 1


def test_a_forged_row_in_our_name_is_outbid() -> None:
    station = Station()
    station.attach_client(CLIENT_A, PLAIN)
    version = station.broker.homes.clients[CLIENT_A].version
    station.hear_row(CLIENT, CLIENT_A, version + 1_000, ClientRow(1, 1, False, ()))  # it wants nothing
    entry = station.board.find(CLIENT, CLIENT_A)
    assert entry is not None and entry.version == version + 1_001
    assert isinstance(entry.content, ClientRow) and entry.content.interests == (PLAIN,)


def test_an_unknown_modulator_harms_nobody_else_and_its_owner_is_told() -> None:
    station = Station()
    unknown = Interest(3, PLAIN.filter, ModulatorSpec("nowhere"))
    station.attach_client(CLIENT_A, COUNTING, unknown)
    (failed,) = (message for message in station.streams.to(CLIENT_A) if isinstance(message, ModulatorFailed))
    assert failed.subscription == 3 and "nowhere" in failed.problem
    for sequence in range(2):
        station.level(CLIENT_A, 50, sequence, 1)
    assert any(isinstance(message, Deliver) for message in station.streams.to(CLIENT_A))

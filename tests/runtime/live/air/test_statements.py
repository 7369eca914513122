"""Lost devices, found devices, invitations used twice: said by one member, known to all who are reached."""

import asyncio
import time
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner
from tests.runtime.live.nodes import acquainted, free_port, running, settings, until
from tests.runtime.live.worlds import world

from roamcast.cli import app
from roamcast.errors import InputError, WireError
from roamcast.event import Publication
from roamcast.filter import Filter
from roamcast.gateway.local import LocalServer
from roamcast.gateway.options import LocalOptions
from roamcast.runtime.live.air.statements import (
    BURST,
    DEVICES_MAX,
    JOINED_MAX,
    MEMBERS_MAX,
    OF_ISSUER_MAX,
    Statements,
)
from roamcast.runtime.live.report.counters import Counters
from roamcast.runtime.live.report.names import Names
from roamcast.runtime.live.settings import LiveSettings
from roamcast.sealing import Identity
from roamcast.sealing.statement import Kind, decode_statement, make_statement
from roamcast.units import NodeId

LOOP = asyncio.new_event_loop()  # not used: statements need clocks alone
LOOP.close()
WORLD = world(LOOP)
ALICE, BOB, LOST = Identity.generate(), Identity.generate(), Identity.generate()


def known(identity: Identity = ALICE) -> Statements:
    return Statements(identity, {}, WORLD, Counters(), Door(), Names())


class Door:
    """Who is out, as an opener would have it; and whom this node has met."""

    def __init__(self) -> None:
        self.out: set[NodeId] = set()
        self.met: dict[NodeId, bytes] = {}

    def on_revoked(self, node: NodeId) -> None:
        self.out.add(node)

    def on_pardoned(self, node: NodeId) -> None:
        self.out.discard(node)

    def public_key(self, node: NodeId) -> bytes | None:
        return self.met.get(node)


class Told:
    """A node's statements, over restarts, and what anybody tells it; each time another neighbour brings it,
    unless `carrier` says who."""

    def __init__(self) -> None:
        self.stored = Disk()
        self.time = 0  # microseconds
        self.carrier = 0
        self.restart()

    def restart(self) -> None:
        self.door, self.counters = Door(), Counters()
        clocks = WORLD._replace(clock=self)
        self.names = Names()
        self.statements = Statements(ALICE, self.stored, clocks, self.counters, self.door, self.names)

    def monotonic_ns(self) -> int:
        return self.time * 1_000

    def time_ns(self) -> int:
        return time.time_ns()

    def tell(self, who: Identity, kind: Kind, subject: object, carrier: NodeId | None = None) -> bool:
        self.carrier += 1
        octets = make_statement(who, kind, str(subject), int(time.time())).encode()
        return self.statements.on_octets(octets, self.carrier if carrier is None else carrier)

    def kept(self) -> int:
        """As many as are on the disk."""
        self.statements.save()
        return len(msgspec.msgpack.decode(self.stored["statements"]))

    def refused(self, reason: str) -> float:
        return self.counters.value("statements_refused_total", reason=reason)


class Disk(dict[str, bytes]):
    writes = 0

    def __setitem__(self, key: str, value: bytes) -> None:
        self.writes += 1
        super().__setitem__(key, value)


@pytest.mark.realtime
def test_a_lost_device_is_excluded_by_one_command_also_by_members_that_come_later(tmp_path: Path) -> None:
    async def play() -> None:
        port = free_port()
        late_settings = settings(4, port=port)
        async with running(
            settings(1, port=port, state="one.db"),
            settings(2, port=port),
            settings(3, port=port),
            base=tmp_path,
        ) as (alice, bob, lost):
            server = LocalServer(alice, LocalOptions(socket=str(tmp_path / "s")))
            await server.start()
            try:
                await until(acquainted(alice, bob, lost))
                got: list[str] = []
                for node in (alice, bob):
                    session = node.applications.open(lambda delivery: got.append(delivery.event.topic))
                    session.subscribe(Filter.everything())
                thief = lost.applications.open(lambda delivery: None)
                thief.publish(Publication(topic="before"))
                await until(lambda: got == ["before"] * 2)
                words = ["key", "revoke", "3", "--socket", str(tmp_path / "s")]
                ended = await asyncio.to_thread(CliRunner().invoke, app, words)
                assert ended.stdout == "node 3 is revoked\n", ended.output
                await until(lambda: bob.status().revoked == (3,) and lost.status().revoked == (3,))
                assert "this node was revoked" in lost.status().problems[0].text
                thief.publish(Publication(topic="after"))
                alice.applications.open(lambda delivery: None).publish(Publication(topic="ours"))
                refused = "frames_refused_total"
                await until(lambda: alice.counters.value(refused, reason="revoked") > 0)
                await until(lambda: bob.counters.value(refused, reason="revoked") > 0)
                await until(lambda: got.count("ours") == 2)
                assert "after" not in got
                async with running(late_settings) as (late,):
                    await until(lambda: late.status().revoked == (3,))
                forget = ["key", "forget", "2", "--socket", str(tmp_path / "s")]
                ended = await asyncio.to_thread(CliRunner().invoke, app, forget)
                assert "announces number 2 has it" in ended.stdout, ended.output
                await until(acquainted(alice, bob))
                forget[2] = "77"
                ended = await asyncio.to_thread(CliRunner().invoke, app, forget)
                assert ended.exit_code == 1 and "node 77: has no pinned key" in ended.stderr, ended.output
                ended = await asyncio.to_thread(CliRunner().invoke, app, [*words, "--undo"])
                await until(lambda: bob.status().revoked == ())
                await until(lambda: "again" in got or thief.publish(Publication(topic="again")) is None)
            finally:
                await server.stop()
        async with running(settings(1, port=port, state="one.db"), base=tmp_path) as (again,):
            assert len(again.radio.statements.to_tell(0)) == 1, "it is kept over a restart"

    asyncio.run(play())


@pytest.mark.realtime
def test_an_invitation_that_two_devices_used_is_noticed_when_they_meet() -> None:
    async def play() -> None:
        port = free_port()

        def invited(number: int) -> LiveSettings:
            plain = settings(number, port=port)
            keys = msgspec.structs.replace(plain.keys, invitation="0123456789abcdef")
            return msgspec.structs.replace(plain, keys=keys)

        async with running(settings(1, port=port), invited(2), invited(3)) as (alice, _, _):
            await until(lambda: any("one invitation" in one.text for one in alice.status().problems))
            assert "used by several devices: node 2, node 3" in alice.status().problems[0].text

    asyncio.run(play())


def test_only_the_latest_word_about_a_device_stands_whatever_the_order() -> None:
    first = make_statement(BOB, "revoke", str(LOST.node), 1_000)
    second = make_statement(BOB, "pardon", str(LOST.node), 2_000)
    for order in ([first, second], [second, first], [first, second, first]):
        statements = known()
        for one in order:
            statements.on_octets(one.encode(), 1)
        assert statements.revoked() == [] and len(statements.to_tell(0)) == 1
    statements = known()
    assert statements.on_octets(first.encode(), 1) and not statements.on_octets(first.encode(), 1)


def test_a_revoked_device_has_no_say_and_nobody_speaks_from_the_future_or_without_end() -> None:
    statements = known()
    statements.issue("revoke", str(LOST.node))
    now = int(time.time())
    own_pardon = make_statement(LOST, "pardon", str(LOST.node), now + 60)
    revenge = make_statement(LOST, "revoke", str(ALICE.node), now + 60)
    ahead = make_statement(BOB, "revoke", "5", now + 10 * 86_400)
    for one in (own_pardon, revenge, ahead):
        assert not statements.on_octets(one.encode(), 1)
    assert statements.revoked() == [LOST.node]
    for number in range(2 * OF_ISSUER_MAX):
        statements.on_octets(make_statement(BOB, "revoke", str(number), now).encode(), number)
    assert len(statements.to_tell(0)) == 1 + OF_ISSUER_MAX


def test_a_revocation_is_not_pushed_out_by_identities_that_a_thief_makes() -> None:
    told = Told()
    told.statements.on_met(BOB.node)
    assert told.tell(BOB, "revoke", LOST.node)
    for number in range(2 * JOINED_MAX):
        told.tell(Identity.generate(), "joined", f"{number:016x}")
    for number in range(DEVICES_MAX + 10):
        thief = Identity.generate()
        told.statements.on_met(thief.node)
        told.tell(thief, "revoke", 100_000_000 + number)
    assert LOST.node in told.statements.revoked() and LOST.node in told.door.out
    assert len(told.statements.to_tell(0)) == DEVICES_MAX + JOINED_MAX == told.kept()
    assert told.refused("full") == 11 and len(told.door.out) == DEVICES_MAX
    # Nor do they keep a later one out: the word of a member that was met earlier, or of this node.
    assert told.tell(BOB, "revoke", 7) and 7 in told.statements.revoked()
    told.statements.issue("revoke", "8")
    assert {7, 8, LOST.node} <= set(told.statements.revoked()) == told.door.out
    assert len(told.door.out) == DEVICES_MAX
    assert not told.tell(Identity.generate(), "revoke", 9)  # who was never met
    told.restart()
    assert {7, 8, LOST.node} <= set(told.statements.revoked())
    assert told.tell(BOB, "revoke", 10), "and it is known over a restart who was met first"


def test_a_neighbour_brings_new_statements_no_faster_than_one_a_second_and_the_disk_is_written_as_often() -> (
    None
):
    told = Told()
    taken = sum(told.tell(Identity.generate(), "joined", f"{number}", carrier=5) for number in range(200))
    assert taken == BURST and told.refused("too_fast") == 200 - BURST
    assert told.tell(BOB, "revoke", 1, carrier=6), "another neighbour has a pace of its own"
    assert told.stored.writes == 0
    told.statements.save()
    told.statements.save()
    assert told.stored.writes == 2  # the statements, and who was met
    told.time += 3_000_000
    assert sum(told.tell(Identity.generate(), "joined", f"{n}", carrier=5) for n in range(9)) == 3
    told.statements.issue("revoke", "3")
    assert told.stored.writes == 4, "what a person says here is on the disk at once"


def test_a_statement_in_the_name_of_a_configured_number_needs_the_key_that_was_met() -> None:
    told = Told()
    holder, other = Identity.generate(5), Identity.generate(5)
    assert not told.tell(holder, "revoke", LOST.node) and told.refused("issuer_not_met") == 1
    told.door.met[5] = holder.public_key
    (octets,) = told.statements.on_met(5)  # what it said waited for the meeting, and is passed on now
    assert told.statements.revoked() == [LOST.node] and decode_statement(octets).issuer == 5
    assert not told.tell(other, "revoke", 77) and told.statements.on_met(5) == []
    assert told.tell(holder, "revoke", 77)


def test_statements_of_the_last_version_are_read_and_members_are_bounded() -> None:
    told = Told()
    octets = make_statement(BOB, "revoke", "7", 1_000).encode()
    told.stored["statement device 7"] = octets
    told.restart()
    assert told.statements.revoked() == [7]
    for node in range(MEMBERS_MAX + 10):
        told.statements.on_met(node)
    told.statements.save()
    assert "statement device 7" not in told.stored and told.statements.to_tell(0) == [octets]
    assert len(told.stored["members met"]) < 5 * MEMBERS_MAX


def test_what_nobody_signed_is_no_statement() -> None:
    good = make_statement(BOB, "revoke", "7", 1_000)
    assert decode_statement(good.encode()) == good
    for bad in (
        msgspec.structs.replace(good, subject="8"),
        msgspec.structs.replace(good, issuer=ALICE.node),
        msgspec.structs.replace(good, public_key=ALICE.public_key),
        msgspec.structs.replace(good, signature=bytes(64)),
        msgspec.structs.replace(good, subject="x"),
        make_statement(BOB, "revoke", "007", 1_000),  # one device has one place
    ):
        with pytest.raises(WireError):
            decode_statement(bad.encode())
    for octets in (b"", b"\xc1", good.encode() + b"\0", bytes(10_000)):
        with pytest.raises(WireError):
            decode_statement(octets)


def test_a_node_does_not_revoke_itself() -> None:
    with pytest.raises(InputError, match="revoke it on another member"):
        known().issue("revoke", str(ALICE.node))

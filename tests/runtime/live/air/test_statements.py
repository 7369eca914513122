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
from roamcast.runtime.live.air.statements import OF_ISSUER_MAX, STATEMENTS_MAX, Statements
from roamcast.runtime.live.report.counters import Counters
from roamcast.runtime.live.settings import LiveSettings
from roamcast.sealing import Identity
from roamcast.sealing.statement import decode_statement, make_statement
from roamcast.units import NodeId

LOOP = asyncio.new_event_loop()  # not used: statements need clocks alone
LOOP.close()
WORLD = world(LOOP)
ALICE, BOB, LOST = Identity.generate(), Identity.generate(), Identity.generate()


def known(identity: Identity = ALICE) -> Statements:
    return Statements(identity, {}, WORLD, Counters(), Unmoved())


class Unmoved:
    """Does nothing about it."""

    def on_revoked(self, node: NodeId) -> None:
        pass

    def on_pardoned(self, node: NodeId) -> None:
        pass


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
                ended = await asyncio.to_thread(CliRunner().invoke, app, [*words, "--undo"])
                await until(lambda: bob.status().revoked == ())
                await until(lambda: "again" in got or thief.publish(Publication(topic="again")) is None)
            finally:
                await server.stop()
        async with running(settings(1, port=port, state="one.db"), base=tmp_path) as (again,):
            assert len(again.radio.statements) == 1, "it is kept over a restart"

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
            assert "used by several devices: nodes 2, 3" in alice.status().problems[0].text

    asyncio.run(play())


def test_only_the_latest_word_about_a_device_stands_whatever_the_order() -> None:
    first = make_statement(BOB, "revoke", str(LOST.node), 1_000)
    second = make_statement(BOB, "pardon", str(LOST.node), 2_000)
    for order in ([first, second], [second, first], [first, second, first]):
        statements = known()
        for one in order:
            statements.on_octets(one.encode())
        assert statements.revoked() == [] and len(statements) == 1
    statements = known()
    assert statements.on_octets(first.encode()) and not statements.on_octets(first.encode())


def test_a_revoked_device_has_no_say_and_nobody_speaks_from_the_future_or_without_end() -> None:
    statements = known()
    statements.issue("revoke", str(LOST.node))
    now = int(time.time())
    own_pardon = make_statement(LOST, "pardon", str(LOST.node), now + 60)
    revenge = make_statement(LOST, "revoke", str(ALICE.node), now + 60)
    ahead = make_statement(BOB, "revoke", "5", now + 10 * 86_400)
    for one in (own_pardon, revenge, ahead):
        assert not statements.on_octets(one.encode())
    assert statements.revoked() == [LOST.node]
    for number in range(2 * OF_ISSUER_MAX):
        statements.on_octets(make_statement(BOB, "revoke", str(number), now).encode())
    assert len(statements) == 1 + OF_ISSUER_MAX
    for _ in range(STATEMENTS_MAX // OF_ISSUER_MAX + 1):
        member = Identity.generate()
        for number in range(OF_ISSUER_MAX):
            statements.on_octets(make_statement(member, "joined", f"{number}", now).encode())
    assert len(statements) == STATEMENTS_MAX == len(list(statements))


def test_what_nobody_signed_is_no_statement() -> None:
    good = make_statement(BOB, "revoke", "7", 1_000)
    assert decode_statement(good.encode()) == good
    for bad in (
        msgspec.structs.replace(good, subject="8"),
        msgspec.structs.replace(good, issuer=ALICE.node),
        msgspec.structs.replace(good, public_key=ALICE.public_key),
        msgspec.structs.replace(good, signature=bytes(64)),
        msgspec.structs.replace(good, subject="x"),
    ):
        with pytest.raises(WireError):
            decode_statement(bad.encode())
    for octets in (b"", b"\xc1", good.encode() + b"\0", bytes(10_000)):
        with pytest.raises(WireError):
            decode_statement(octets)


def test_a_node_does_not_revoke_itself() -> None:
    with pytest.raises(InputError, match="revoke it on another member"):
        known().issue("revoke", str(ALICE.node))

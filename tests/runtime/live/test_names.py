"""Nodes are called what their files call them, wherever a person reads or types."""

import asyncio
from functools import partial
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner, Result
from tests.runtime.live.air.test_statements import Told
from tests.runtime.live.nodes import acquainted, free_port, running, settings, until
from tests.virtual.nodes import VirtualMachine, VirtualWorld

from roamcast.cli import app
from roamcast.client import Message
from roamcast.client.status import way_to_text
from roamcast.columns import Naming
from roamcast.event import Publication, Value
from roamcast.gateway.local import LocalServer, client_of
from roamcast.gateway.options import LocalOptions
from roamcast.runtime.live.air import statements
from roamcast.runtime.live.settings import LiveSettings
from roamcast.sealing import Identity


def test_names_reach_nodes_three_hops_away_and_are_kept_over_restarts() -> None:
    with VirtualWorld(5) as world:
        machines = [world.machine(name, is_derived=True) for name in ("base", "hut", "car", "dog")]
        for one, other in pairwise(machines):
            world.link(one, other)
        for machine in machines:
            machine.start()
        world.run(5.0)
        names = {machine.number: machine.name for machine in machines}
        for machine in machines:
            assert machine.node is not None and machine.node.status().names == names
        base, dog = machines[0], machines[3]
        base.stop()
        world.link(base, machines[1], is_up=False)
        base.start()
        world.run(2.0)
        assert base.node is not None and base.node.status().names == names, "though nobody is heard"
        assert base.node.journal.names.called(dog.number) == f"dog ({dog.number})"


def test_two_nodes_of_one_name_are_told_apart_and_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    with VirtualWorld(6) as world:
        one, other = world.machine("hut", is_derived=True), world.machine("hut", is_derived=True)
        world.link(one, other)
        one.start()
        other.start()
        world.run(20.0)
        assert one.node is not None
        numbers = ", ".join(map(str, sorted((one.number, other.number))))
        (problem,) = one.node.status().problems
        assert problem.text == f"several nodes are called hut: {numbers}; give each a name of its own"
        assert problem.text in {record.getMessage() for record in caplog.records}
        called = Naming(one.node.status().names)
        assert [called(one.number), called(one.number)] == [f"hut ({one.number})"] * 2


def test_a_twin_that_is_revoked_is_warned_of_no_more_and_newcomers_get_no_old_news(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")

    def warned(machine: VirtualMachine) -> str:
        assert machine.node is not None
        return "\n".join(one.text for one in machine.node.status().problems)

    with VirtualWorld(6) as world:
        one, other, late = (world.machine(name, is_derived=True) for name in ("hut", "hut", "late"))
        world.link(one, other)
        world.link(one, late)
        for machine in (one, other):
            machine.start()
        world.run(20.0)
        assert "several nodes" in warned(one), "else the next line proves nothing"
        other.stop()
        assert one.node is not None and one.process is not None
        one.process.call_soon(one.node.revoke, other.number)
        world.run(5.0)
        assert "several nodes" not in warned(one), "the lost one can be given no other name"
        one.process.call_soon(partial(one.node.revoke, other.number, undo=True))
        world.run(5.0)
        caplog.clear()
        late.start()
        world.run(5.0)
        assert late.node is not None and other.number in late.node.status().names
    said = [record.getMessage() for record in caplog.records if record.name == "roamcast.members"]
    assert not [line for line in said if "accepted again" in line], "here it had never been revoked"
    assert said.count(f"node {late.number} is called late") == 1, "who was there is told, itself is not"


def test_the_number_stands_beside_a_name_once() -> None:
    called = Naming({7: "hut"})
    assert [called(7), called(7), called(8)] == ["hut (7)", "hut", "node 8"]


def test_names_are_bounded_and_strangers_push_out_nobody_who_was_met(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statements, "NAMES_MAX", 10)
    told = Told()
    friend, late = Identity.generate(), Identity.generate()
    told.statements.on_met(friend.node)
    assert told.tell(friend, "named", "friend", carrier=1)
    assert [told.tell(Identity.generate(), "named", f"x{n}", carrier=1) for n in range(12)].count(True) == 9
    assert told.refused("full") == 3
    told.statements.on_met(late.node)
    assert told.tell(late, "named", "late", carrier=1), "one of a stranger makes room"
    assert told.kept() == 10 == len(told.statements.to_tell(100))
    assert {"friend", "late"} <= set(told.names.values()) and len(told.names) == 10
    assert not told.tell(friend, "named", "line\nbreak") and told.refused("unreadable") == 1
    for n in range(100):  # however many names a neighbour brings at once,
        told.tell(Identity.generate(), "named", f"y{n}", carrier=2)
    assert told.refused("too_fast") > 0
    assert told.tell(friend, "revoke", 7, carrier=2), "a revocation does not wait behind them"


def _named(name: str, port: int) -> LiveSettings:
    plain = settings(1, port=port, strategy="epidemic")
    return msgspec.structs.replace(
        plain,
        node=msgspec.structs.replace(plain.node, name=name, number=None),
        keys=msgspec.structs.replace(plain.keys, identity=Identity.generate().to_text()),
    )


@pytest.mark.realtime
def test_names_are_typed_and_read_in_every_command_of_a_node(tmp_path: Path) -> None:
    def said(*arguments: str) -> Result:
        return CliRunner().invoke(app, [*arguments, "--socket", str(tmp_path / "a.sock")])

    async def play() -> None:
        port = free_port()
        async with running(_named("base", port), _named("hut", port), base=tmp_path) as (base, hut):
            server = LocalServer(base, LocalOptions(socket=str(tmp_path / "a.sock")))
            await server.start()
            try:
                await until(acquainted(base, hut))
                await until(lambda: len(hut.journal.names) == len(base.journal.names) == 2)
                await until(lambda: base.node.underlay.neighbours() == [hut.number])

                async def ask(*arguments: str) -> Result:
                    return await asyncio.to_thread(said, *arguments)

                table = (await ask("peers")).stdout.splitlines()
                assert table[1].split()[:2] == ["hut", str(hut.number)]
                client = await client_of(hut, addressed=True)
                published = await ask("publish", "-t", "x", "-m", "hello", "--to", "hut")
                assert published.exit_code == 0, published.output
                arrived: Message = await client.addressed.next(5.0)
                assert arrived.event.payload == b"hello"
                event = published.stdout.strip()
                way = await ask("trace", event)
                assert f"{event} of base" in way.stdout
                there = way_to_text(hut.way_of(arrived.event.id))
                assert f"arrived from base ({base.number}) (1 hop" in there
                assert (await ask("trace", f"base:{event.partition(':')[2]}")).exit_code == 0
                wrong = await ask("publish", "-t", "x", "--to", "hat")
                assert wrong.exit_code == 2
                assert wrong.stderr == (
                    "roamcast: hat: is no node that is known here (did you mean `hut`?); allowed: base, hut\n"
                )
                revoked = await ask("key", "revoke", "hut")
                assert revoked.stdout == f"hut, node {hut.number}, is revoked\n"
                assert f"revoked       hut ({hut.number})" in (await ask("status")).stdout
                pardoned = await ask("key", "revoke", "hut", "--undo")
                assert pardoned.exit_code == 0 and base.status().revoked == ()
            finally:
                await server.stop()

    asyncio.run(play())


@pytest.mark.realtime
def test_no_word_between_nodes_reaches_a_program() -> None:
    async def play() -> None:
        async with running(settings(1, port=free_port())) as (node,):
            client = await client_of(node)
            async with client.subscribe(topic="alarm/#") as messages:
                session = node.applications.open(lambda delivery: None)
                attributes: dict[str, Value] = {
                    "mqtt": 4,
                    "mqtt.at": 5,
                    "roamcast.receipt": "[1,2,3,[]]",
                    "level": 5,
                }
                session.publish(Publication(attributes, b"smoke", topic="alarm/fire"))
                message = await messages.next(5.0)
                assert message.event.attributes == {"level": 5}

    asyncio.run(play())

"""Whole nodes over the loopback: real sockets, real seals, real time."""

import asyncio
import time
from pathlib import Path

import pytest
from tests.runtime.live.nodes import GROUP, acquainted, free_port, running, settings, until

from roamcast.applications import AdmissionOutcome
from roamcast.broker.core import Delivery
from roamcast.event import Publication
from roamcast.filter import Filter
from roamcast.runtime.live.linux import LocalDisk
from roamcast.runtime.live.node import LiveNode, _config
from roamcast.runtime.live.report.segments import read_trace
from roamcast.runtime.live.settings import KeySettings, TraceSettings
from roamcast.sealing import GroupKey, Identity
from roamcast.strategy import STRATEGIES
from roamcast.strategy.tree.strategy import Tree
from roamcast.trace import Delivered, Dropped, DropReason, Published, Transmitted
from roamcast.units import SECOND

pytestmark = pytest.mark.realtime


@pytest.mark.parametrize("strategy", STRATEGIES.own_names())
def test_two_nodes_exchange_events_of_both_classes(strategy: str) -> None:
    async def play() -> None:
        port = free_port()
        async with running(
            settings(port=port, strategy=strategy), settings(port=port, strategy=strategy)
        ) as (alice, bob):
            got: list[Delivery] = []
            bob.applications.open(got.append).subscribe(Filter.sql("level > 3"))
            session = alice.applications.open(lambda delivery: None)
            await until(acquainted(alice, bob))

            def publish_until_heard() -> bool:
                # A network that has just begun to form may miss some real-time events.
                session.publish(Publication({"level": 5}, payload=b"now"))
                session.publish(Publication({"level": 2}, payload=b"not wanted"))
                return bool(got)

            await until(publish_until_heard)
            admission = session.publish(Publication({"level": 7}, lifetime=60 * SECOND))
            if not STRATEGIES.declared(strategy).hands_over:
                assert admission.outcome is AdmissionOutcome.REFUSED and "epidemic" in admission.why
                return
            kept = admission.event
            await until(lambda: any(delivery.event.id == kept.id for delivery in got))
            assert {delivery.event.attributes["level"] for delivery in got} == {5, 7}
            ids = [delivery.event.id for delivery in got]
            assert len(set(ids)) == len(ids), "an application got an event twice"
            assert all(delivery.hops == 1 for delivery in got)

    asyncio.run(play())


def test_a_node_without_the_group_key_is_neither_heard_nor_helped() -> None:
    async def play() -> None:
        port = free_port()
        stranger_key = GroupKey.generate().to_text()
        async with running(
            settings(port=port), settings(port=port), settings(port=port, group=stranger_key)
        ) as (alice, bob, stranger):
            got: dict[str, list[Delivery]] = {"bob": [], "stranger": []}
            bob.applications.open(got["bob"].append).subscribe(Filter.everything())
            stranger.applications.open(got["stranger"].append).subscribe(Filter.everything())
            await until(acquainted(alice, bob))
            stranger.applications.open(lambda delivery: None).publish(Publication({"from": "stranger"}))
            session = alice.applications.open(lambda delivery: None)
            await until(lambda: session.publish(Publication({"from": "alice"})) and got["bob"])
            await until(lambda: stranger.counters.value("frames_refused_total", reason="unknown_key") > 3)
            assert {delivery.event.attributes["from"] for delivery in got["bob"]} == {"alice"}
            assert {delivery.event.attributes["from"] for delivery in got["stranger"]} == {"stranger"}
            assert bob.counters.value("frames_refused_total", reason="unknown_key") > 0
            assert len(stranger.radio.peers) == 0

    asyncio.run(play())


def test_a_group_changes_its_key_one_node_after_the_other_without_a_pause() -> None:
    old, new = GROUP, GroupKey.generate().to_text()

    async def play() -> None:
        port = free_port()
        async with running(settings(1, port=port), settings(2, port=port)) as (alice, bob):
            got: list[Delivery] = []
            bob.applications.open(got.append).subscribe(Filter.everything())
            session = alice.applications.open(lambda delivery: None)
            await until(acquainted(alice, bob))
            identity = Identity.generate().to_text()  # not looked at: a node keeps its own
            for group in ((old, new), (new, old), (new,)):
                for node in (alice, bob):
                    node.replace_group_keys(KeySettings(identity=identity, group=group))
                    event = session.publish(Publication()).event
                    await until(lambda event=event: any(one.event.id == event.id for one in got))  # type: ignore[misc]

    asyncio.run(play())


def test_a_restart_uses_no_sequence_number_again_and_keeps_memorized_events(tmp_path: Path) -> None:
    identity = Identity.generate().to_text()

    async def publish() -> list[int]:
        own = settings(port=free_port(), identity=identity, state="a.db", strategy="epidemic")
        async with running(own, base=tmp_path) as (node,):
            session = node.applications.open(lambda delivery: None)
            durable = asyncio.Event()
            events = [session.publish(Publication({"n": n}, lifetime=60 * SECOND)).event for n in range(3)]
            node.when_durable(durable.set)
            await durable.wait()
            return [event.sequence for event in events]

    async def look() -> tuple[list[int], int]:
        async with running(settings(port=free_port(), identity=identity, state="a.db"), base=tmp_path) as (
            node,
        ):
            got: list[Delivery] = []
            session = node.applications.open(got.append)
            session.subscribe(Filter.everything())
            return [delivery.event.sequence for delivery in got], session.publish(
                Publication()
            ).event.sequence

    first = asyncio.run(publish())
    kept, following = asyncio.run(look())
    assert kept == first == [0, 1, 2]
    assert following > max(first)


def test_a_node_that_keeps_nothing_repeats_no_sequence_number_either() -> None:
    identity = Identity.generate().to_text()

    async def publish() -> int:
        async with running(settings(port=free_port(), identity=identity)) as (node,):
            return node.applications.open(lambda delivery: None).publish(Publication()).event.sequence

    assert asyncio.run(publish()) < asyncio.run(publish())


def test_the_trace_has_the_run_on_the_common_clock(tmp_path: Path) -> None:
    epoch = time.monotonic_ns() // 1_000

    async def play() -> None:
        port = free_port()
        async with running(
            settings(1, port=port, trace=TraceSettings(folder="1", epoch=epoch)),
            settings(2, port=port, trace=TraceSettings(folder="2", epoch=epoch)),
            base=tmp_path,
        ) as (alice, bob):
            got: list[Delivery] = []
            bob.applications.open(got.append).subscribe(Filter.everything())
            session = alice.applications.open(lambda delivery: None)
            await until(acquainted(alice, bob))
            await until(lambda: session.publish(Publication({"n": 1}, payload=bytes(200))) and got)

    asyncio.run(play())
    alice, bob = list(read_trace(LocalDisk(), tmp_path / "1")), list(read_trace(LocalDisk(), tmp_path / "2"))
    delivered = next(record for record in bob if isinstance(record, Delivered))
    published = next(
        record for record in alice if isinstance(record, Published) and record.sequence == delivered.sequence
    )
    sent = next(
        record
        for record in alice
        if isinstance(record, Transmitted) and record.sequence == delivered.sequence
    )
    assert (delivered.node, delivered.publisher, delivered.hops, delivered.matched) == (2, 1, 1, True)
    assert 0 <= published.t <= sent.t <= delivered.t <= time.monotonic_ns() // 1_000 - epoch
    assert sent.size > 200 and sent.kind == "data" and sent.message == "flood"


def test_the_trace_says_what_the_seal_refused_and_whose_it_claims_to_be(tmp_path: Path) -> None:
    async def play() -> None:
        port, stranger = free_port(), GroupKey.generate().to_text()
        trace = TraceSettings(folder="1")
        async with running(
            settings(1, port=port, trace=trace), settings(2, port=port, group=stranger), base=tmp_path
        ) as (alice, _):
            await until(lambda: alice.counters.value("frames_refused_total", reason="unknown_key"))

    asyncio.run(play())
    drops = [record for record in read_trace(LocalDisk(), tmp_path / "1") if isinstance(record, Dropped)]
    assert {(drop.node, drop.reason, drop.to, drop.detail) for drop in drops} == {
        (1, DropReason.SEAL, 2, "unknown key")
    }


def test_a_node_that_stops_takes_its_leave_of_the_tree() -> None:
    """Silence says nothing for a minute and more here: only the node's own word ends the link."""
    options = {
        "beacon_interval": 1.0,
        "allowed_beacon_loss": 100,
        "hello_interval": 60.0,
        "discover_timeout": 0.2,
    }

    async def play() -> None:
        port = free_port()
        async with running(
            settings(1, port=port, strategy="tree", options=options),
            settings(2, port=port, strategy="tree", options=options),
        ) as (alice, bob):
            trees = [node.node.strategy for node in (alice, bob)]
            assert isinstance(trees[0], Tree) and isinstance(trees[1], Tree)
            first, second = trees[0].overlay, trees[1].overlay
            await until(lambda: first.neighbours() == [2] and second.neighbours() == [1])
            await alice.stop()
            await until(lambda: not second.neighbours(), 10.0)

    asyncio.run(play())


def test_stopping_twice_is_stopping_once_and_frees_the_ports() -> None:
    async def play() -> None:
        port = free_port()
        node = await LiveNode.start(settings(1, port=port, own_port=free_port()))
        own = node.radio.air.port
        await node.stop()
        await node.stop()
        again = await LiveNode.start(settings(1, port=port, own_port=own))
        await again.stop()

    asyncio.run(play())


def test_live_nodes_have_defaults_of_their_own_unless_they_play_a_scenario() -> None:
    """`tree` heals sooner with `prompt`; a node with a configured number plays a part in a scenario."""
    found = [
        _config(settings(number, port=1, strategy="tree", options=options)).strategy_options
        for number, options in ((None, {}), (None, {"preset": "driving"}), (3, {}))
    ]
    assert [getattr(each, "preset", None) for each in found] == ["prompt", "driving", "walking"]

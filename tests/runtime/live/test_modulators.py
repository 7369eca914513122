"""Consumers' functions on a live node: real time counts, and one that hangs is stopped."""

import asyncio
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.runtime.live.nodes import acquainted, free_port, running, settings, until

from roamcast.broker.core import Delivery
from roamcast.client import ClientError
from roamcast.client.status import to_text
from roamcast.event import Event, Publication
from roamcast.filter import Filter
from roamcast.gateway.local import client_of
from roamcast.modulator import MODULATORS, Content, Modulator, ModulatorSpec
from roamcast.runtime.live.linux import LocalDisk
from roamcast.runtime.live.node import LiveNode
from roamcast.runtime.live.report.segments import read_trace
from roamcast.runtime.live.settings import LiveSettings, PartSettings, TraceSettings
from roamcast.strategy.opportunistic import Opportunistic
from roamcast.trace import Delivered, Dropped, DropReason
from roamcast.underlay.base import NoOptions

pytestmark = pytest.mark.realtime

OPTIONS = {"broker_update": 0.5, "broker_discovery": 0.5, "modulator_limit": 0.1}


class Burns(Modulator):
    """Processor time, 20 ms of it for each event."""

    def process(self, event: Event) -> Content | None:
        until = time.thread_time() + 0.02
        while time.thread_time() < until:
            pass
        return Content({"n": event.attributes["n"]})


class Hangs(Modulator):
    """From its third event on."""

    def __init__(self) -> None:
        self._seen = 0

    def process(self, event: Event) -> Content | None:
        self._seen += 1
        while self._seen >= 3:
            pass
        return Content({"seen": self._seen})


if "test live burns" not in MODULATORS.names():
    MODULATORS.add("test live burns", NoOptions, lambda _, parameters: Burns())
if "test live hangs" not in MODULATORS.names():
    MODULATORS.add("test live hangs", NoOptions, lambda _, parameters: Hangs())


def quick(**more: Any) -> LiveSettings:
    beacons = PartSettings(name="beacons", options={"interval": 0.1})
    made = settings(strategy="opportunistic", **{"options": OPTIONS, **more})
    return msgspec.structs.replace(made, underlay=beacons)


def test_a_hanging_modulator_is_cut_off_and_the_node_and_its_other_consumers_go_on(tmp_path: Path) -> None:
    async def play() -> None:
        port = free_port()
        trace = TraceSettings(folder="1")
        async with running(
            quick(port=port, trace=trace),
            quick(port=port),
            base=tmp_path,
        ) as (alice, bob):
            bad: list[Delivery] = []
            good: list[Delivery] = []
            plain: list[Delivery] = []
            session = alice.applications.open(bad.append)
            number = session.subscribe(Filter.everything(), ModulatorSpec.of("test live hangs"))
            alice.applications.open(good.append).subscribe(
                Filter.everything(), ModulatorSpec.of("projection", {"attributes": ["n"]})
            )
            alice.applications.open(plain.append).subscribe(Filter.everything())
            publisher = bob.applications.open(lambda delivery: None)
            await until(acquainted(alice, bob))
            published = 0

            def publish_until_told() -> bool:
                nonlocal published
                publisher.publish(Publication({"n": published}))
                published += 1
                return any(d.event.type == "roamcast.modulator_failed" for d in bad)

            await until(publish_until_told)
            before = len(good)
            for _ in range(5):
                publisher.publish(Publication({"n": published}))
                published += 1
            await until(lambda: len(good) >= before + 5 and len(plain) == len(good))
            (told,) = [d for d in bad if d.event.type == "roamcast.modulator_failed"]
            assert told.event.attributes["subscription"] == number
            assert "took too long" in str(told.event.attributes["problem"])
            assert [d.event.attributes["seen"] for d in bad if d.modulated] == [1, 2]
            assert [d.event.attributes["n"] for d in good] == [d.event.attributes["n"] for d in plain]

    asyncio.run(play())
    records = list(read_trace(LocalDisk(), tmp_path / "1"))
    drops = [r for r in records if isinstance(r, Dropped) and r.reason is DropReason.MODULATOR]
    assert len(drops) == 1 and "took too long" in drops[0].detail


def test_a_client_gets_what_its_modulator_makes_and_hears_what_is_wrong_with_it() -> None:
    async def play() -> None:
        async with (
            running(quick(port=free_port())) as (node,),
            await client_of(node) as client,
            await client_of(node) as other,
        ):
            levels = ModulatorSpec.of("projection", {"attributes": ["level"]})
            async with (
                client.subscribe(topic="#", modulator=levels) as found,
                other.subscribe(topic="#") as whole,
            ):
                await other.publish(topic="sensor", attributes={"level": 3, "name": "north"}, payload="raw")
                made, plain = await found.next(20), await whole.next(20)
            assert made.event.id == plain.event.id
            assert made.event.attributes == {"level": 3}
            assert plain.event.attributes == {"level": 3, "name": "north"}
            with pytest.raises(ClientError, match=r"nobody's"):
                await client.open_subscription(Filter.everything(), modulator=ModulatorSpec.of("nobody's"))

    asyncio.run(asyncio.wait_for(play(), 60))


def test_a_projection_that_matches_its_filter_no_more_is_not_misdelivered(tmp_path: Path) -> None:
    async def play() -> None:
        port = free_port()
        trace = TraceSettings(folder="1")
        async with running(quick(port=port, trace=trace), quick(port=port), base=tmp_path) as (alice, bob):
            got: list[Delivery] = []
            names = ModulatorSpec.of("projection", {"attributes": ["name"]})
            alice.applications.open(got.append).subscribe(Filter.sql("level > 3"), names)
            publisher = bob.applications.open(lambda delivery: None)
            await until(acquainted(alice, bob))
            await until(lambda: publisher.publish(Publication({"level": 5, "name": "north"})) and got)
            assert got[0].event.attributes == {"name": "north"}

    asyncio.run(play())
    delivered = [
        record for record in read_trace(LocalDisk(), tmp_path / "1") if isinstance(record, Delivered)
    ]
    assert delivered and all(record.matched for record in delivered)


def test_the_load_of_a_live_broker_shows_in_its_row_and_in_its_status() -> None:
    """A broker whose modulators burn its processor says so to others; the two nodes share a process here, so
    that the other one is busy too, with something else than modulators."""

    async def play() -> None:
        port = free_port()
        patient = {**OPTIONS, "modulator_limit": 60.0}
        async with (
            running(quick(port=port, options=patient), quick(port=port, options=patient)) as (alice, bob),
            await client_of(alice) as client,
        ):
            got: list[Delivery] = []
            alice.applications.open(got.append).subscribe(
                Filter.everything(), ModulatorSpec.of("test live burns")
            )
            publisher = bob.applications.open(lambda delivery: None)
            await until(acquainted(alice, bob))
            published = 0

            def told(seen_by: LiveNode, of: LiveNode) -> bool:
                nonlocal published
                if published <= len(got) + 1:  # no faster than they are worked off
                    publisher.publish(Publication({"n": published}))
                    published += 1
                strategy = seen_by.node.strategy
                assert isinstance(strategy, Opportunistic) and strategy.broker is not None
                return (strategy.broker.overlay.load_of(of.number) or 0) >= 5

            await until(lambda: told(bob, alice), 60)
            await until(lambda: told(alice, bob), 60)
            await until(lambda: told(bob, alice) and alice.status().broker_load is not None, 60)
            status = await client.status()
            assert status.broker_load is not None and status.broker_load > 0
            assert "of what this broker can do" in to_text(status)
            assert (alice.counters.reading("broker_load") or 0) > 0

    asyncio.run(asyncio.wait_for(play(), 120))

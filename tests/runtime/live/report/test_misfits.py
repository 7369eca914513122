"""Neighbours that cannot take part as they are: noticed at the first frame, named, and said everywhere."""

import asyncio
import logging
import time

import msgspec
import pytest
from tests.runtime.live.nodes import acquainted, free_port, running, settings, until

from roamcast.client.status import peers_to_text
from roamcast.host import Channel
from roamcast.runtime.live.node import LiveNode
from roamcast.runtime.live.report.counters import Counters
from roamcast.runtime.live.report.misfits import (
    EXPIRY,
    LINES_PER_MINUTE,
    MISFITS_MAX,
    OPTIONS_LENGTH_MAX,
    Misfits,
    NodeProfile,
    options_text,
)
from roamcast.runtime.live.report.names import Names
from roamcast.sealing import GroupKey, Refusal
from roamcast.sealing.opener import PROFILE_BYTES_MAX
from roamcast.strategy.chapar.options import ChaparOptions
from roamcast.wire.status import Misfit

OURS = NodeProfile("0.2.0", "epidemic", "beacons", "", 1_800_000_000)


def kinds(node: LiveNode) -> dict[str, Misfit]:
    return {one.kind: one for one in node.status().misfits}


@pytest.mark.realtime
def test_another_strategy_is_named_with_its_address_in_log_status_and_metrics(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def play() -> None:
        port = free_port()
        async with running(
            settings(1, port=port, strategy="epidemic"), settings(2, port=port, strategy="tree")
        ) as (alice, bob):
            await until(acquainted(alice, bob))
            await until(lambda: "strategy" in kinds(alice) and "strategy" in kinds(bob))
            found = kinds(alice)["strategy"]
            assert (found.address, found.node) == ("127.0.0.1", 2)
            assert "node 2 has the strategy 'tree', this one 'epidemic'" in found.problem
            assert (
                "127.0.0.1" in alice.status().problems[0].text and "'tree'" in alice.status().problems[0].text
            )
            assert alice.status().problems[0].level == "error"
            assert 'roamcast_misfits{kind="strategy"} 1' in alice.counters.to_text()
            lines = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
            assert f"a neighbour does not fit: 127.0.0.1 {found.problem}" in lines
            # Its beacons are heard well, but it is no neighbour: nothing of what it says is understood.
            (row,) = peers_to_text(alice.status()).splitlines()[1:2]
            assert " other strategy " in row and "%" not in row and "neighbour" not in row

    asyncio.run(play())


@pytest.mark.realtime
def test_a_foreign_group_is_named_once_with_its_address_and_key_id(caplog: pytest.LogCaptureFixture) -> None:
    async def play() -> None:
        port = free_port()
        foreign = GroupKey.generate()
        async with running(settings(1, port=port), settings(2, port=port, group=foreign.to_text())) as (
            alice,
            _,
        ):
            await until(lambda: "group" in kinds(alice))
            found = kinds(alice)["group"]
            assert found.address == "127.0.0.1" and found.node is None
            key = f"(key id {foreign.id:04x}, which is not in our ring)"
            assert found.problem == f"is of another group: this node does not have its group key {key}"
            told = [record.getMessage() for record in caplog.records if key in record.getMessage()]
            assert told == [f"a neighbour does not fit: 127.0.0.1 {found.problem}"]
            assert alice.status().problems[0].level == "warning", "it may be meant so"

    asyncio.run(play())


@pytest.mark.realtime
def test_a_peer_that_claims_anothers_number_is_an_error_with_an_address() -> None:
    async def play() -> None:
        port = free_port()
        async with running(settings(1, port=port), settings(2, port=port)) as (alice, bob):
            await until(acquainted(alice, bob))
            async with running(settings(2, port=port)):  # another identity with bob's number
                await until(lambda: "identity" in kinds(alice) and "identity" in kinds(bob))
                assert "known with another key" in kinds(alice)["identity"].problem
                assert "our own node number" in kinds(bob)["identity"].problem
                assert alice.status().problems[0].level == "error"

    asyncio.run(play())


@pytest.mark.parametrize(
    ("changed", "kind", "words"),
    [
        ({"strategy": "tree"}, "strategy", "has the strategy 'tree'"),
        ({"underlay": "olsr"}, "underlay", "has the underlay 'olsr', this one 'beacons'"),
        ({"options": 'node_vectors="bloom"'}, "settings", 'node_vectors="bloom"'),
        ({"program": "0.9.0"}, "program", "runs roamcast 0.9.0"),
        ({"clock": 1_800_003_600}, "clock", "+3600 s from ours"),
        ({"clock": 0}, "clock", "its clock is not set"),
    ],
)
def test_each_difference_has_its_kind_and_words(changed: dict[str, object], kind: str, words: str) -> None:
    misfits = Misfits(Counters(), Names())
    misfits.introduced(OURS, 7, "10.0.0.7", OURS.encode(), 0)
    assert misfits.standing(0) == []
    other = msgspec.structs.replace(OURS, **changed)
    deaf = misfits.introduced(OURS, 7, "10.0.0.7", other.encode(), 0)
    (found,) = misfits.standing(0)
    assert found.kind == kind and words in found.problem and "node 7" in found.problem
    assert (Channel.STRATEGY in deaf) == (kind == "strategy")
    assert (Channel.UNDERLAY in deaf) == (kind == "underlay")
    assert not misfits.introduced(OURS, 7, "10.0.0.7", OURS.encode(), 1), "restarted with what fits"
    assert misfits.standing(EXPIRY) == []


def test_later_versions_may_say_more_and_nonsense_is_no_profile() -> None:
    misfits = Misfits(Counters(), Names())
    longer = msgspec.msgpack.encode(["0.2.0", "epidemic", "beacons", "", 1_800_000_000, "more"])
    misfits.introduced(OURS, 7, "10.0.0.7", longer, 0)
    assert misfits.standing(0) == []
    for number, profile in enumerate([b"", b"\xc1", b"\x91\xa1a", b"\x00" * 255]):
        misfits.introduced(OURS, number, "10.0.0.8", profile, 0)
    assert [found.kind for found in misfits.standing(0)] == ["version"] * 4


def test_a_flood_of_strangers_fills_neither_table_nor_log(caplog: pytest.LogCaptureFixture) -> None:
    counters = Counters()
    misfits = Misfits(counters, Names())
    for number in range(10_000):
        misfits.refused(Refusal.UNKNOWN_KEY, f"10.0.{number // 256}.{number % 256}", f"key {number}", 0)
    assert len(misfits.standing(0)) == MISFITS_MAX
    assert len(caplog.records) == LINES_PER_MINUTE
    assert counters.total("misfits_seen_total") == 10_000
    misfits.refused(Refusal.FORGED, "10.1.1.1", "", 0)
    assert "10.1.1.1" not in {found.address for found in misfits.standing(0)}


def test_options_are_said_where_they_differ_from_the_defaults_and_always_fit() -> None:
    assert options_text(None, ChaparOptions()) == ""
    assert options_text(ChaparOptions(node_vectors="bloom")) == 'node_vectors="bloom"'
    many = msgspec.defstruct("Many", [(f"option_{n}", str, "") for n in range(40)])
    text = options_text(many(**{f"option_{n}": "x" * n for n in range(40)}))
    assert text.startswith("digest:")
    largest = NodeProfile("v" * 32, "s" * 32, "u" * 32, "o" * OPTIONS_LENGTH_MAX, int(time.time()))
    assert len(largest.encode()) <= PROFILE_BYTES_MAX

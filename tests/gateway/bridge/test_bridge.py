"""A bridge to a broker elsewhere: from an MQTT client of a node to one of the broker, and back.

At length: `tests/torture/test_bridge_moved.py`.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest
from tests.gateway.bridge.rig import MOSQUITTO, BridgeRig, flow, lost_and_doubled
from tests.gateway.mqtt.harness import in_loop, until
from tests.gateway.mqtt.lasting import LastingClient, eventually
from tests.gateway.mqtt.stand_alone import StandAloneNode

from roamcast.errors import InputError
from roamcast.event import EventId, Publication
from roamcast.filter import Filter
from roamcast.gateway.bridge.bridge import Bridge
from roamcast.gateway.bridge.handover import BrokerSession, Handover, decode_note, encode_note
from roamcast.gateway.mqtt.packets.codec import encode
from roamcast.gateway.mqtt.packets.values import V5, ConnAck, Properties, Publish
from roamcast.gateway.options import BridgeOptions

pytestmark = pytest.mark.realtime

Broker = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@pytest.mark.skipif(MOSQUITTO is None, reason="mosquitto is not installed")
@in_loop
async def test_events_go_both_ways_once_while_the_uplink_is_cut_and_moves(tmp_path: Path) -> None:
    rig = BridgeRig(tmp_path)
    both = {b"from the field", b"from home"}

    async def have_both(client: LastingClient) -> bool:
        return await eventually(lambda: both <= client.arrived.keys())

    try:
        await rig.start()
        up, down = await flow(rig, events=150, cuts=1, every=0.02)
        assert lost_and_doubled(up, b"up", 150) == (0, 0)
        assert lost_and_doubled(down, b"down", 150) == (0, 0)
        assert all(uplink.opened for uplink in rig.uplinks), "the uplink never moved"
        # A topic that flows both ways is echoed by neither side.
        rig.field.publish("both/x", b"from the field", 2)
        rig.home.publish("both/x", b"from home", 2)
        assert await have_both(rig.headquarters) and await have_both(rig.echo)
        rig.field.publish("report/last", b"last", 1)
        assert await eventually(lambda: b"last" in rig.home.arrived)
        for client in (rig.headquarters, rig.echo):
            assert {payload: client.arrived[payload] for payload in both} == dict.fromkeys(both, 1)
    finally:
        await rig.stop()


@asynccontextmanager
async def serving_as(broker: Broker) -> AsyncIterator[int]:
    """The port of a broker that does as it is told."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            await broker(reader, writer)
            await reader.read()
        writer.transport.abort()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        await asyncio.sleep(0.1)  # for the loop to close what was aborted


async def refusing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(100)
    writer.write(encode(ConnAck(False, 0x87, Properties()), V5))


async def talking_nonsense(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(bytes(range(255, 200, -1)))


async def vanishing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(100)
    writer.transport.abort()


@pytest.mark.parametrize("broker", [refusing, talking_nonsense, vanishing])
@in_loop
async def test_a_bad_broker_is_tried_again_later_and_nothing_is_lost(broker: Broker) -> None:
    async with serving_as(broker) as port:
        node = StandAloneNode()
        bridge = Bridge(node, BridgeOptions(host="127.0.0.1", port=port, up=("a/#",)))
        await bridge.start()
        node.applications.open(lambda delivery: None).publish(Publication({}, b"x", "a/b"))
        await until(lambda: node.counters.counts["bridge_ended_total"] >= 1)
        assert node.counters.gauges["bridge_waiting"]() == 1
        assert node.counters.gauges["bridge_carrying"]() == 0
        await bridge.stop()


async def flooding(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(100)
    writer.write(encode(ConnAck(False, 0, Properties()), V5))
    for number in range(5_000):
        writer.write(encode(Publish(topic="c/d", payload=b"%d" % number), V5))
        await writer.drain()


@in_loop
async def test_a_broker_that_floods_is_read_as_fast_as_the_mesh_takes_it() -> None:
    async with serving_as(flooding) as port:
        node = StandAloneNode()
        got: list[bytes] = []
        session = node.applications.open(lambda delivery: got.append(delivery.event.payload))
        session.subscribe(Filter.topic("c/#"))
        bridge = Bridge(node, BridgeOptions(host="127.0.0.1", port=port, down=("c/#",), lifetime=0))
        await bridge.start()
        await until(lambda: len(got) >= 5_000)
        assert node.counters.gauges["bridge_waiting"]() == 0
        await bridge.stop()


def test_the_session_moves_with_its_exchanges() -> None:
    first, second = BrokerSession(), BrokerSession()
    begun, confirmed, over = (first.begin(EventId(1, number)).packet_id for number in range(3))
    assert first.on_received(confirmed) and not first.on_received(999)
    assert first.end(over) == EventId(1, 2) and first.end(over) is None
    assert not first.is_repeated(Publish(topic="t", payload=b"x", qos=2, packet_id=7))
    assert not first.is_repeated(Publish(topic="t", payload=b"y", qos=1, packet_id=8))
    note = decode_note(encode_note(first.handover()))
    assert isinstance(note, Handover)
    second.adopt(note)
    told = [(one.packet_id, one.released) for one in second.up.values()]
    assert told == [(begun, False), (confirmed, True)]
    assert second.under_way(EventId(1, 0)) == begun and not second.under_way(EventId(1, 2))
    assert second.begin(EventId(1, 9)).packet_id not in (begun, confirmed)
    assert second.is_repeated(Publish(topic="t", payload=b"x", qos=2, packet_id=7, duplicate=True))
    assert second.is_repeated(Publish(topic="t", payload=b"y", qos=1, packet_id=8, duplicate=True))
    assert not second.is_repeated(Publish(topic="t", payload=b"z", qos=1, packet_id=8, duplicate=True))
    assert decode_note(b"\xff nonsense") is None


def test_the_page_has_every_key_and_its_example_is_a_table(tmp_path: Path) -> None:
    page = (Path(__file__).parents[3] / "docs" / "use" / "bridge.md").read_text()
    example = page.split("```toml\n")[1].split("```")[0]
    (table,) = msgspec.toml.decode(example).values()
    assert msgspec.convert(table, BridgeOptions).up[1] == "alarm/+?level>3"
    missing = [key for key in BridgeOptions.__struct_fields__ if f"`{key}`" not in page and key not in table]
    assert not missing


@pytest.mark.parametrize("text", ["a/#/b", "$share/group/a"])
@in_loop
async def test_a_filter_that_is_none_is_named(text: str) -> None:
    with pytest.raises(InputError, match=r"bridge.up"):
        await Bridge(StandAloneNode(), BridgeOptions(host="127.0.0.1", up=(text,))).start()

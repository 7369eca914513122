"""Subscriptions that follow a position: by the program, a file, gpsd."""

import asyncio
import json
import math
from pathlib import Path

import pytest
from tests.gateway.local.test_local import served
from tests.gateway.mqtt.harness import in_loop, until
from tests.gateway.mqtt.stand_alone import StandingNode

from roamcast.client import ClientSubscription, blocking, connect, near
from roamcast.client.near import FollowedCircle, position_in, positions
from roamcast.errors import InputError
from roamcast.event import Event
from roamcast.gateway.local import client_of

ZURICH = (47.3769, 8.5417)
METRE = 1 / 111_195  # degrees of latitude, near enough


def north(metres: float) -> tuple[float, float]:
    return ZURICH[0] + metres * METRE, ZURICH[1]


def event(place: tuple[float, float]) -> Event:
    return Event(1, 1, {"lat": place[0], "lon": place[1]})


@in_loop
async def test_a_program_that_walks_renews_rarely_and_misses_nothing_near(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client = await client_of(StandingNode())
    renewed = 0
    ask = client._ask

    async def counting(request: object, *others: object) -> object:
        nonlocal renewed
        renewed += type(request).__name__ == "SubscribeRequest"
        return await ask(request, *others)  # type: ignore[arg-type]

    monkeypatch.setattr(client, "_ask", counting)
    async with client.subscribe(near=500, position=ZURICH) as around:
        for metres in range(0, 3_000, 10):
            await around.move(*north(metres))
            assert around.wanted is not None
            for far in (-500, 0, 500):  # at the edge of what is wanted, on both sides
                assert around.wanted.matches(event(north(metres + far * 0.999))), metres
            assert not around.wanted.matches(event(north(metres + 751)))
        # Each step of the subscription is a quarter of the radius, 125 m and up to one step of the walk more.
        assert 3_000 / 135 - 1 <= renewed <= 3_000 / 125 + 1
        before = renewed
        for jitter in range(100):
            await around.move(*north(2_990 + 100 * math.sin(jitter)))
        assert renewed <= before + 1
        with pytest.raises(InputError, match="latitudes to 90"):
            await around.move(91, 0)


@in_loop
async def test_no_event_comes_twice_and_stored_ones_come_when_they_are_near() -> None:
    client = await client_of(StandingNode())
    for metres in (0, 1_000):
        lat, lon = north(metres)
        await client.publish(topic=f"post/{metres}", attributes={"lat": lat, "lon": lon}, lifetime=600)
    async with client.subscribe(topic="post/#", near=400, position=ZURICH) as around:
        assert (await around.next(5)).event.topic == "post/0"
        await around.move(*north(300))
        await around.move(*north(700))
        assert (await around.next(5)).event.topic == "post/1000"
        await around.move(*ZURICH)
        with pytest.raises(TimeoutError):
            await around.next(0.05)


@in_loop
async def test_a_file_leads_and_what_is_none_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(near, "LOOK_SECONDS", 0.01)
    file = tmp_path / "here"
    file.write_text("nowhere")
    client = await client_of(StandingNode())

    async def begin() -> None:
        await asyncio.sleep(0.05)
        file.write_text("47.3769 8.5417\n")

    task = asyncio.create_task(begin())
    async with client.subscribe(near=500, position=str(file)) as around:
        await task
        assert around.wanted is not None and around.wanted.matches(event(ZURICH))
        file.write_text(json.dumps({"lat": 10, "lon": 20, "tst": 1}))
        await until(lambda: matches(around, (10, 20)))
        for wrong in ("{", "[1]", '{"lat": 91, "lon": 0}', '{"lat": null}', "\xff"):
            file.write_bytes(wrong.encode("latin-1"))
            await asyncio.sleep(0.03)
        file.unlink()
        await asyncio.sleep(0.03)
        assert matches(around, (10, 20))
        file.write_text("-10, -20")
        await until(lambda: matches(around, (-10, -20)))


def matches(around: ClientSubscription, place: tuple[float, float]) -> bool:
    return around.wanted is not None and around.wanted.matches(event(place))


@in_loop
async def test_gpsd_leads_with_its_fixes_and_is_found_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(near, "RETRY_SECONDS", 0.01)
    fixes = [(47.0, 8.0), (48.0, 8.0)]
    asked: list[bytes] = []

    async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b'{"class":"VERSION","release":"3.25","proto_major":3}\r\n')
        asked.append(await reader.readline())
        writer.write(b'{"class":"TPV","device":"/dev/ttyACM0","mode":1}\r\nno json "TPV"\r\n')
        lat, lon = fixes[min(len(asked) - 1, 1)]
        writer.write(b'{"class":"TPV","mode":3,"lat":%f,"lon":%f,"alt":420.1}\r\n' % (lat, lon))
        writer.write(b'{"class":"SKY","lat":1,"lon":1}\r\n')
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(speak, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    client = await client_of(StandingNode())
    async with client.subscribe(near=500, position=f"gpsd:127.0.0.1:{port}") as around:
        await until(lambda: matches(around, (48.0, 8.0)))
        assert asked[0] == b'?WATCH={"enable":true,"json":true};\n' and not matches(around, (1, 1))
    server.close()


@in_loop
async def test_a_move_while_the_node_is_away_counts_when_it_is_back(tmp_path: Path) -> None:
    path = tmp_path / "node.sock"
    node = StandingNode()
    first = served(path, node)
    await first.__aenter__()
    async with (
        connect(path, reconnect=True) as client,
        client.subscribe(near=500, position=ZURICH) as around,
    ):
        await first.__aexit__(None, None, None)
        await client.lost
        await around.move(10, 20)
        async with served(path, node), connect(path) as other:
            await other.publish(topic="a", attributes={"lat": 10.001, "lon": 20.0}, lifetime=60)
            assert (await around.next(30)).event.topic == "a"
            await around.close()


@pytest.mark.parametrize("source", ["gpsd:host:port", "gpsd:h:99999", "91,0", "0;181"])
def test_sources_that_can_be_none_are_refused(source: str) -> None:
    with pytest.raises(InputError, match="position"):
        positions(source)


def test_a_radius_is_above_nothing() -> None:
    for metres in (0, -1, math.inf, math.nan):
        with pytest.raises(InputError, match="near"):
            FollowedCircle(None, metres)


@in_loop
async def test_what_is_missing_is_said() -> None:
    client = await client_of(StandingNode())
    with pytest.raises(InputError, match="needs a position"):
        async with client.subscribe(near=500):
            pass
    with pytest.raises(InputError, match="no such file"):
        async with client.subscribe(near=500, position="/nowhere/at/all"):
            pass
    async with client.subscribe(topic="a") as plain:
        with pytest.raises(InputError, match="with near"):
            await plain.move(1, 1)


def test_positions_in_files_and_reports() -> None:
    assert position_in(b"47.5,8") == (47.5, 8.0)
    assert position_in(b' {"lat": -1, "lon": 2.5, "x": []} ') == (-1.0, 2.5)
    for wrong in (b"", b"1", b"1 2 3", b'{"lat": "1", "lon": 2}', b'{"lat": 1}', b"\xff\xff", b"[" * 3_000):
        assert position_in(wrong) is None


def test_blocking_programs_move_too(tmp_path: Path) -> None:
    assert blocking.BlockingSubscription.move.__doc__ == ClientSubscription.move.__doc__

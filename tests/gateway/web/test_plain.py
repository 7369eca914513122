"""Publishing and subscribing by plain HTTP, as `curl` does it."""

import json

import pytest
from tests.gateway.mqtt.harness import TIMEOUT, in_loop, until
from tests.gateway.web.harness import HttpAnswer, ServedWeb, Wire, basic, get, serving_web

from roamcast.gateway.access import TopicRights
from roamcast.gateway.mqtt.packets.values import Publish, Subscribe, SubscriptionRequest
from roamcast.gateway.options import MqttOptions


def post(path: str, body: bytes = b"", **headers: str) -> bytes:
    return get(path, method="POST", Content_Length=str(len(body)), **headers) + body


async def line(wire: Wire) -> dict[str, object]:
    import asyncio

    async with asyncio.timeout(TIMEOUT):
        found: dict[str, object] = json.loads(await wire.reader.readline())
    return found


async def stream(served: ServedWeb, query: str, **headers: str) -> tuple[Wire, HttpAnswer]:
    wire = await served.wire()
    wire.say(get(f"/subscribe?{query}", **headers))
    return wire, await wire.head()


@in_loop
async def test_what_one_request_publishes_another_streams() -> None:
    async with serving_web() as served:
        wire, head = await stream(served, "topic=alarm/%23")
        assert head.status == 200 and head.headers["content-type"] == "application/x-ndjson"
        assert "content-length" not in head.headers and head.headers["cache-control"] == "no-cache"
        answer = await served.asked(post("/publish?topic=alarm/fire&level=5&room=A", b"smoke"))
        assert (answer.status, answer.body) == (200, b"")
        assert await line(wire) == {
            "topic": "alarm/fire",
            "payload": "smoke",
            "attributes": {"level": 5, "room": "A"},
        }
        await served.asked(post("/publish?topic=alarm/raw", b"\xff\x00"))
        assert await line(wire) == {"topic": "alarm/raw", "base64": "/wA="}
        wire.end()
        await until(lambda: not served.mqtt.connections)


@in_loop
async def test_a_retained_message_waits_for_the_next_stream_and_filters_choose() -> None:
    async with serving_web() as served:
        for level in ("2", "7"):
            path = f"/publish?topic=sensor/{level}/value&retain=1&level={level}"
            assert (await served.asked(post(path, level.encode()))).status == 200
        wire, _ = await stream(served, "topic=sensor/+/value?level%3E3")
        found = await line(wire)
        assert found["payload"] == "7" and found["retained"] is True


@in_loop
async def test_a_page_gets_events_as_browsers_read_them() -> None:
    async with serving_web() as served:
        wire, head = await stream(served, "topic=a&topic=b", Accept="text/event-stream")
        assert head.headers["content-type"] == "text/event-stream"
        await served.asked(post("/publish?topic=b&qos=0", b"x"))
        assert await wire.reader.readuntil(b"\n\n") == b'data: {"topic":"b","payload":"x"}\n\n'


@pytest.mark.parametrize("size", [70_000, 300_000])
@in_loop
async def test_a_large_body_comes_in_parts_after_its_request(size: int) -> None:
    async with serving_web() as served:
        browser = await (await served.wire()).connected()
        browser.say_packets(Subscribe(1, (SubscriptionRequest("big"),)))
        await browser.hear()
        wire = await served.wire()
        body = bytes(range(250)) * (size // 250)
        head, _, _ = post("/publish?topic=big", body, Expect="100-continue").partition(body)
        wire.say(head)
        assert (await wire.head()).status == 100
        wire.say(body[:1_000])
        wire.say(body[1_000:])
        assert (await wire.answer()).status == 200
        browser._packets = type(browser._packets)(1_000_000)
        message = await browser.hear()
        assert isinstance(message, Publish) and message.payload == body


@pytest.mark.parametrize(
    ("asked", "status", "words"),
    [
        (post("/publish", b"x"), 400, "topic: is given 0 times"),
        (post("/publish?topic=a&topic=b", b"x"), 400, "topic: is given 2 times"),
        (post("/publish?topic=a/%23", b"x"), 400, "wildcards"),
        (post("/publish?topic=", b"x"), 400, "topic name"),
        (post("/publish?topic=%00", b"x"), 400, "topic name"),
        (post("/publish?topic=%ff", b"x"), 400, "UTF-8"),
        (post("/publish?topic=a&qos=2", b"x"), 400, "qos: is '2'; allowed: [01]"),
        (post("/publish?topic=a&expiry=x", b"x"), 400, "expiry"),
        (post("/publish?topic=a&retain=1&retain=1", b"x"), 400, "retain"),
        (get("/subscribe?topic=a/%23/b"), 400, "topic filter invalid"),
        (get("/subscribe?" + "&".join(["topic=a"] * 51)), 400, "51 times"),
        (get("/publish?topic=a", method="POST", Content_Length="999999999"), 413, "too large"),
        (get("/publish?topic=a", method="POST", Content_Length="-1"), 400, "no HTTP"),
        (get("/publish?topic=a", method="POST", Transfer_Encoding="chunked"), 400, "no HTTP"),
        (post("/node.html", b"x"), 405, "only GET"),
        (post("/publish?topic=a", b"x", Origin="https://evil.example"), 403, "origin"),
        (post("/publish?topic=a", b"x", Sec_Fetch_Site="cross-site"), 403, "origin"),
        (get("/subscribe?topic=a", Sec_Fetch_Site="cross-site"), 403, "origin"),
        (post("/publish?topic=a", b"x", Host="evil.example"), 421, "name"),
    ],
)
@in_loop
async def test_what_cannot_be_asked_is_said_in_a_line(asked: bytes, status: int, words: str) -> None:
    async with serving_web() as served:
        answer = await served.asked(asked)
        assert answer.status == status and words in answer.body.decode(), answer.body
        assert sum(count for name, count in served.node.counters.counts.items() if "web_refused" in name) == 1
        assert served.mqtt.exchange.published == 0


@in_loop
async def test_two_lengths_are_no_request() -> None:
    """Who counts differently than we do could hide a second request in a body."""
    async with serving_web() as served:
        head = get("/publish?topic=a", method="POST", Content_Length="1").removesuffix(b"\r\n")
        assert (await served.asked(head + b"content-length: 5\r\n\r\nxxxxx")).status == 400


@in_loop
async def test_rights_and_passwords_are_those_of_mqtt() -> None:
    rights = {"probe": TopicRights(publish=("sensor/#",), subscribe=())}
    users = {"probe": "secret-1", "chief": "secret-2"}
    async with serving_web(users, MqttOptions(users=users, rights=rights)) as served:
        asked = post("/publish?topic=sensor/1", b"x", Authorization=basic("probe", "secret-1"))
        assert (await served.asked(asked)).status == 200
        asked = post("/publish?topic=alarm", b"x", Authorization=basic("probe", "secret-1"))
        assert (await served.asked(asked)).status == 403
        asked = get("/subscribe?topic=sensor/1", Authorization=basic("probe", "secret-1"))
        assert (await served.asked(asked)).status == 403
        for wrong in ({}, {"Authorization": basic("probe", "secret-2")}, {"Authorization": "Basic ="}):
            assert (await served.asked(post("/publish?topic=sensor/1", b"x", **wrong))).status == 401
        assert served.mqtt.exchange.published == 1


@in_loop
async def test_a_body_that_does_not_come_is_not_waited_for() -> None:
    async with serving_web() as served:
        served.be_impatient(0.1)
        wire = await served.wire()
        wire.say(get("/publish?topic=a", method="POST", Content_Length="5") + b"x")
        assert (await wire.answer()).status == 408


@in_loop
async def test_a_request_may_come_octet_by_octet() -> None:
    async with serving_web() as served:
        wire = await served.wire()
        for octet in post("/publish?topic=a", b"xyz"):
            wire.say(bytes([octet]))
        assert (await wire.answer()).status == 200
        assert served.mqtt.exchange.published == 1


@in_loop
async def test_a_node_that_stops_ends_its_streams() -> None:
    async with serving_web() as served:
        wire, _ = await stream(served, "topic=a")
        await served.server.stop()
        assert await wire.reader.read() == b""

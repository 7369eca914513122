"""Clients that people own, replayed: what each sends with its usual settings, made octet by octet.

`docs/use/works-with.md` has the settings and where each form was looked up.
"""

import json
import struct

import pytest
from tests.gateway.mqtt.harness import Client, Served, in_loop, serving, until

from roamcast.errors import ScenarioError
from roamcast.event import Event
from roamcast.filter import Filter
from roamcast.gateway.mqtt.mesh.members import JSON_BYTES_MAX, JsonMembers, check_members
from roamcast.gateway.mqtt.packets.values import V3_1_1, V5, ConnAck, PacketType, Publish, SubAck


def text(value: bytes) -> bytes:
    return struct.pack("!H", len(value)) + value


def packet(first: int, body: bytes) -> bytes:
    length, head = len(body), b""
    while True:
        length, octet = divmod(length, 128)
        head += bytes([octet | (0x80 if length else 0)])
        if not length:
            return bytes([first]) + head + body


def connect(name: bytes, level: int, flags: int, keep_alive: int, *fields: bytes) -> bytes:
    return packet(
        0x10, text(name) + struct.pack("!BBH", level, flags, keep_alive) + b"".join(map(text, fields))
    )


def publish(topic: bytes, payload: bytes, qos: int = 0, retain: bool = False, packet_id: int = 0) -> bytes:
    number = struct.pack("!H", packet_id) if qos else b""
    return packet(0x30 | qos << 1 | retain, text(topic) + number + payload)


def subscribe(packet_id: int, *filters: tuple[bytes, int]) -> bytes:
    body = struct.pack("!H", packet_id) + b"".join(text(one) + bytes([qos]) for one, qos in filters)
    return packet(0x82, body)


async def replayed(server: Served, hello: bytes, version: int = V3_1_1) -> Client:
    client = await server.opened(version)
    client.say_raw(hello)
    assert (await client.expect(ConnAck)).reason == 0
    return client


def published(server: Served) -> list[Event]:
    """What came into the mesh."""
    found: list[Event] = []
    session = server.node.applications.open(lambda delivery: found.append(delivery.event))
    session.subscribe(Filter.everything())
    return found


LOCATION = {
    "_type": "location", "BSSID": "02:00:00:00:00:00", "SSID": "rescue", "acc": 12, "alt": 420, "batt": 84,
    "bs": 1, "conn": "w", "created_at": 1794921223, "lat": 47.3769, "lon": 8.5417, "m": 1, "t": "u",
    "tid": "ad", "topic": "owntracks/ada/phone", "tst": 1794921222, "vac": 3, "vel": 0,
}  # fmt: skip
OWNTRACKS = connect(
    b"MQIsdp",
    3,
    0xC4,
    3600,
    b"adaphone",
    b"owntracks/ada/phone",
    b'{"_type":"lwt","tst":1794921200}',
    b"ada",
    b"",
)


@in_loop
async def test_owntracks_on_android() -> None:
    """MQTT 3.1, a lasting session, an hour of keep alive, user and empty password, positions retained."""
    rules = {"owntracks/+/+": ("lat", "lon", "batt", "tst")}
    async with serving(json=rules) as server:
        events = published(server)
        phone = await replayed(server, OWNTRACKS)
        wanted = [b"owntracks/+/+", b"owntracks/+/+/event", b"owntracks/+/+/info", b"owntracks/ada/phone/cmd"]
        phone.say_raw(subscribe(1, *((one, 2) for one in wanted)))
        assert (await phone.expect(SubAck)).reasons == (2, 2, 2, 2)
        payload = json.dumps(LOCATION).encode()
        phone.say_raw(publish(b"owntracks/ada/phone", payload, 1, True, 2))
        assert (await phone.answer()).type is PacketType.PUBACK
        own = await phone.receive()
        assert (own.payload, own.qos, own.retain) == (payload, 1, False)
        late = await server.client5("late")
        await late.subscribe("owntracks/#?batt>80", qos=1)
        message = await late.receive()
        assert message.retain and message.payload == payload and message.properties is not None
        assert ("lat", "47.3769") in message.properties.user_properties
        near = Filter.parse("WITHIN(lat, lon, 47.3769, 8.5417, 500)")
        assert near.matches(events[0]) and not Filter.parse("batt < 80").matches(events[0])
        await late.subscribe("owntracks/ada/+", qos=0)
        assert (await late.receive()).retain
        phone.drop()
        assert (await late.expect(Publish)).payload == b'{"_type":"lwt","tst":1794921200}'


@in_loop
async def test_home_assistant() -> None:
    """3.1.1, clean, birth and will on homeassistant/status, discovery by wildcards in one SUBSCRIBE."""
    config = json.dumps({"name": "Gauge", "state_topic": "river/gauge", "unit_of_measurement": "cm"}).encode()
    async with serving() as server:
        device = await server.client("gauge")
        await device.publish("homeassistant/sensor/gauge/config", config, 1, retain=True)
        await device.subscribe("homeassistant/status", qos=0)
        hello = connect(b"MQTT", 4, 0x06, 60, b"5aXk2fJq0bYt7ZmN3RvQ1w", b"homeassistant/status", b"offline")
        home = await replayed(server, hello)
        wanted = (
            b"homeassistant/+/+/config",
            b"homeassistant/+/+/+/config",
            b"homeassistant/device/+/config",
        )
        home.say_raw(subscribe(1, *((one, 0) for one in wanted)))
        assert (await home.expect(SubAck)).reasons == (0, 0, 0)
        found = await home.expect(Publish)
        assert (found.topic, found.payload, found.retain) == (
            "homeassistant/sensor/gauge/config",
            config,
            True,
        )
        home.say_raw(publish(b"homeassistant/status", b"online"))
        assert (await device.receive()).payload == b"online"
        home.say_raw(subscribe(2, (b"river/gauge", 0)))
        await home.expect(SubAck)
        await device.publish("river/gauge", b"214", retain=True)
        assert (await home.expect(Publish)).payload == b"214"
        home.say_raw(b"\xc0\x00")
        await home.hears_nothing()
        home.drop()
        assert (await device.receive()).payload == b"offline"


@in_loop
async def test_node_red() -> None:
    """MQTT.js: 3.1.1 by default; as MQTT 5 with user properties, and retain as published in its options."""
    async with serving() as server:
        plain = await replayed(server, connect(b"MQTT", 4, 0x02, 60, b"nodered_4d0c1b2a3e5f6071"))
        plain.say_raw(subscribe(53_124, (b"alarm/#", 2)))
        assert (await plain.expect(SubAck)).reasons == (2,)
        properties = b"\x17\x01\x19\x01"  # request problem and response information
        body = text(b"MQTT") + struct.pack("!BBH", 5, 2, 60) + bytes([len(properties)]) + properties
        other = await replayed(server, packet(0x10, body + text(b"nodered_00112233aabbccdd")), V5)
        options = b"\x00" + text(b"alarm/fire?level>3") + bytes([0b1010])  # QoS 2, retain as published
        other.say_raw(packet(0x82, struct.pack("!H", 7) + options))
        assert (await other.expect(SubAck)).reasons == (2,)
        user = b"\x26" + text(b"level") + text(b"5")
        head = text(b"alarm/fire") + struct.pack("!H", 9) + bytes([len(user)]) + user
        other.say_raw(packet(0x35, head + b'{"room":"A"}'))  # QoS 2, retained
        assert (await other.answer()).type is PacketType.PUBREC
        other.say_raw(packet(0x62, struct.pack("!H", 9)))
        assert (await other.answer()).type is PacketType.PUBCOMP
        shown = await other.receive()
        assert shown.retain and shown.payload == b'{"room":"A"}'
        assert (await plain.receive()).retain is False


POSITION = {
    "channel": 0, "from": 2130636288, "hop_start": 3, "hops_away": 0, "id": 1179253093,
    "payload": {"PDOP": 111, "altitude": 420, "ground_speed": 0, "latitude_i": 473769000,
                "longitude_i": 85417000, "precision_bits": 32, "sats_in_view": 10, "time": 1794921222},
    "rssi": -31, "sender": "!7efeee00", "snr": 6.0, "timestamp": 1794921222, "to": 4294967295,
    "type": "position",
}  # fmt: skip


@in_loop
async def test_meshtastic() -> None:
    """Its MQTT module: 3.1.1, clean, 15 seconds of keep alive, QoS 0, protobuf and JSON side by side."""
    rules = {"msh/+/2/json/#": ("type", "from", "payload.latitude_i", "payload.none.deeper")}
    async with serving(json=rules) as server:
        events = published(server)
        hello = connect(b"MQTT", 4, 0xC2, 15, b"!7efeee00", b"meshdev", b"large4cats")
        radio = await replayed(server, hello)
        for number, channel in enumerate((b"e/LongFast", b"json/LongFast", b"e/PKI"), start=2):
            radio.say_raw(subscribe(number, (b"msh/EU_868/2/" + channel + b"/+", 1)))
            assert (await radio.expect(SubAck)).reasons == (1,)
        envelope = bytes.fromhex("0a0d0d00eefe7e15ffffffff22020801") + b"\x12\x08LongFast\x1a\x09!7efeee00"
        radio.say_raw(publish(b"msh/EU_868/2/e/LongFast/!7efeee00", envelope))
        radio.say_raw(publish(b"msh/EU_868/2/json/LongFast/!7efeee00", json.dumps(POSITION).encode()))
        assert [(await radio.expect(Publish)).payload for _ in range(2)] == [
            envelope,
            json.dumps(POSITION).encode(),
        ]
        assert events[0].attributes == {"mqtt": 0}
        assert events[1].attributes == {
            "mqtt": 0, "type": "position", "from": 2130636288, "payload.latitude_i": 473769000
        }  # fmt: skip
        south = await server.client5("south")
        await south.subscribe("msh/#?type=position&payload.latitude_i<0")
        radio.say_raw(publish(b"msh/EU_868/2/json/LongFast/!7efeee00", json.dumps(POSITION).encode()))
        await radio.expect(Publish)
        await south.hears_nothing()
        assert server.counted("mqtt_json_total:no_json") == 0


@in_loop
async def test_ros_2_mqtt_client() -> None:
    """Paho C++: no client identifier, clean; the type of a topic retained beside it, payloads in CDR."""
    name = b"std_msgs/msg/String\0"
    kind = bytes.fromhex("00010000") + struct.pack("<I", len(name)) + name + b"\0"
    message = bytes.fromhex("00010000") + struct.pack("<I", 3) + b"hi\0"
    async with serving() as server:
        robot = await replayed(server, connect(b"MQTT", 4, 0x02, 60, b""))
        for _ in range(2):  # with every message
            robot.say_raw(publish(b"mqtt_client/ros_msg_type/pingpong/ros", kind, 0, True))
            robot.say_raw(publish(b"pingpong/ros", message))
        await robot.hears_nothing()
        other = await replayed(server, connect(b"MQTT", 4, 0x02, 60, b"other"))
        other.say_raw(subscribe(1, (b"pingpong/ros", 0)))
        other.say_raw(subscribe(2, (b"mqtt_client/ros_msg_type/pingpong/ros", 0)))
        await other.expect(SubAck)
        await other.expect(SubAck)
        found = await other.expect(Publish)
        assert (found.payload, found.retain) == (kind, True)
        robot.say_raw(publish(b"pingpong/ros", message))
        assert (await other.expect(Publish)).payload == message
        robot.say_raw(b"\xe0\x00")
        await until(lambda: len(server.listener.sessions) == 1)


# Members of JSON payloads.


@pytest.mark.parametrize(
    ("payload", "found", "counted"),
    [
        (b'{"lat": 47.5, "lon": -8}', {"lat": 47.5, "lon": -8}, ""),
        (b'{"ok": true, "who": "ada"}', {"ok": True, "who": "ada"}, ""),
        (b'{"lat": null}', {}, ""),
        (b'{"in": {"side": 3}}', {"in.side": 3}, ""),
        (b'{"in": 4}', {}, ""),
        (b"", {}, ""),
        (b"21.5", {}, "no_json"),
        (b"[1]", {}, "no_json"),
        (b"on fire", {}, "no_json"),
        (b'{"lat": 47', {}, "no_json"),
        (b'{"lat": 47} more', {}, "no_json"),
        (b'{"lat": nan}', {}, "no_json"),
        (b'{"who": "\xff"}', {}, "no_json"),
        (b'{"who": "\\ud800"}', {}, "no_json"),
        (b'{"x": ' + b"[" * 5_000 + b"]" * 5_000 + b"}", {}, "no_json"),
        (b'{"lat": 1e999, "lon": 1}', {"lon": 1}, "no_attribute"),
        (b'{"lat": 99999999999999999999, "lon": 1}', {"lon": 1}, "no_attribute"),
        (b'{"lat": [1], "lon": 1}', {"lon": 1}, "no_attribute"),
        (b'{"who": "%b", "lon": 1}' % (b"a" * 257), {"lon": 1}, "no_attribute"),
        (b'{"lat": 1, "x": "%b"}' % (b"a" * JSON_BYTES_MAX), {}, "too_long"),
    ],
)  # fmt: skip
def test_members_that_are_no_attributes_are_counted(
    payload: bytes, found: dict[str, object], counted: str
) -> None:
    counts: list[str] = []
    members = JsonMembers({"a/#": ("lat", "lon", "ok", "who", "in.side")}, counts.append)
    assert members.of("a/b", payload) == found
    assert counts == [counted] * bool(counted)
    assert members.of("b", payload) == {}


@in_loop
async def test_a_user_property_wins_and_what_does_not_fit_goes_without() -> None:
    async with serving(json={"#": ("level", "note")}) as server:
        events = published(server)
        client = await server.client5()
        properties = b"\x26" + text(b"level") + text(b"5")
        body = text(b"a") + bytes([len(properties)]) + properties + b'{"level": 1, "note": "x"}'
        client.say_raw(packet(0x30, body))
        many = b"".join(b"\x26" + text(b"p%d" % number) + text(b"1") for number in range(255))
        length = bytes([len(many) & 0x7F | 0x80, len(many) >> 7])
        client.say_raw(packet(0x30, text(b"a") + length + many + b'{"level": 1, "note": "x"}'))
        await client.hears_nothing()
        assert events[0].attributes == {"mqtt": 0, "level": 5, "note": "x"}
        assert len(events[1].attributes) == 256 and "note" not in events[1].attributes


@pytest.mark.parametrize(
    ("rules", "words"),
    [
        ({"a/#/b": ("x",)}, "mqtt.json: has 'a/#/b'"),
        ({"a": ("x..y",)}, "mqtt.json.a: has 'x..y'; allowed"),
        ({"a": ("",)}, "has ''"),
        ({"a": ("mqtt.at",)}, "has 'mqtt.at'"),
        ({"a": ("mqtt",)}, "has 'mqtt'"),
        ({"a": ("roamcast.receipt",)}, "has 'roamcast.receipt'"),
        ({"a": ("x" * 129,)}, "allowed: names of members"),
        ({"a": (".".join("abcdefghi"),)}, "allowed: names of members"),
    ],
)
def test_rules_that_can_be_none_are_refused(rules: dict[str, tuple[str, ...]], words: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        check_members(rules, "mqtt.json")
    assert words in str(caught.value)

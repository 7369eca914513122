"""A node's page in a real browser: two real nodes, a password, a node that vanishes and comes back."""

import json
import math
import signal
import socket
import struct
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from paho.mqtt.client import Client, MQTTMessage, MQTTv5
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from tests.pages.browser import Browser, missing

from roamcast.cli.mesh_page import MeshPage
from roamcast.daemon.fresh import init
from roamcast.lab.live.board import MeshBoard
from roamcast.lab.live.mesh import MeshNode, MeshState
from roamcast.lab.live.streaming import WatchedMesh

pytestmark = pytest.mark.realtime

SECONDS = 60
PASSWORD = "engine-1843"


def free_port(kind: socket.SocketKind = socket.SOCK_STREAM) -> int:
    with socket.socket(socket.AF_INET, kind) as probe:
        probe.bind(("127.0.0.1", 0))
        number: int = probe.getsockname()[1]
        return number


class RunningNode:
    """`roamcast node` with a page, as a process."""

    def __init__(self, file: Path, web: int) -> None:
        self.file = file
        self.web = web
        self.page = f"http://127.0.0.1:{web}/"
        self._process: subprocess.Popen[str] | None = None
        self.start()

    def start(self) -> None:
        command = [sys.executable, "-m", "roamcast", "node", str(self.file)]
        self._process = subprocess.Popen(command, cwd=self.file.parent, stderr=subprocess.PIPE, text=True)
        assert self._process.stderr is not None
        assert any("the page is at" in line for line in self._process.stderr), "it does not start"

    def kill(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        self._process.communicate()


class Pair:
    def __init__(self, folder: Path) -> None:
        air = free_port(socket.SOCK_DGRAM)
        make_tiles(folder / "tiles")
        files = [init(folder / "alice.toml", interface="lo")]
        files.append(init(folder / "bob.toml", like=files[0]))
        ports = [free_port(), free_port()]
        for file, port in zip(files, ports, strict=True):
            text = file.read_text().replace("# port = 4747", f"port = {air}")
            users = f'users = {{ ada = "{PASSWORD}" }}\ntiles = "tiles"' if file.stem == "alice" else ""
            file.write_text(f"{text}\n[web]\nport = {port}\n{users}\n")
        self.alice, self.bob = (RunningNode(file, port) for file, port in zip(files, ports, strict=True))
        self.heard: list[tuple[str, bytes]] = []
        self.paho = Client(CallbackAPIVersion.VERSION2, "at-bob", protocol=MQTTv5, transport="websockets")
        self.paho.on_message = self._on_message
        self.paho.on_connect = self._on_connect
        self.paho.connect("127.0.0.1", self.bob.web)
        self.paho.loop_start()

    def _on_connect(self, *arguments: object) -> None:
        self.paho.subscribe("to-bob/#", 1)

    def _on_message(self, client: Client, data: object, message: MQTTMessage) -> None:
        self.heard.append((message.topic, bytes(message.payload)))

    def close(self) -> None:
        self.paho.disconnect()
        self.paho.loop_stop()
        self.alice.kill()
        self.bob.kill()


def make_tiles(folder: Path, lat: float = 47.3769, lon: float = 8.5417) -> None:
    """Some tiles around a place: paper with a path and a frame, each zoom a little darker."""
    for zoom in (14, 16):
        count = 2**zoom
        down = (1 - math.asinh(math.tan(math.radians(lat))) / math.pi) / 2
        column, row = int((lon + 180) / 360 * count), int(down * count)
        for x in range(column - 3, column + 4):
            (folder / str(zoom) / str(x)).mkdir(parents=True)
            for y in range(row - 3, row + 4):
                (folder / str(zoom) / str(x) / f"{y}.png").write_bytes(tile_picture(240 - zoom))


def tile_picture(grey: int) -> bytes:
    """A PNG of 256 by 256 pixels."""
    lines = bytearray()
    for y in range(256):
        row = [grey] * 256
        for x in range(256):
            is_path = abs(x - 128 - 40 * math.sin(y * math.pi / 128)) < 1.5
            row[x] = 165 if is_path else grey - 12 if x == 0 or y == 0 else grey
        lines += b"\0" + bytes(row)

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack("!I", len(data)) + kind + data + struct.pack("!I", zlib.crc32(kind + data))

    head = struct.pack("!IIBBBBB", 256, 256, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        (chunk(b"IHDR", head), chunk(b"IDAT", zlib.compress(bytes(lines))), chunk(b"IEND", b""))
    )


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    if (lack := missing()) is not None:
        pytest.skip(lack)
    started = Browser(width=1280, height=1200)
    yield started
    started.close()


@pytest.fixture(scope="module")
def pair(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    started = Pair(tmp_path_factory.mktemp("pair"))
    yield started
    started.close()


def fill(browser: Browser, **fields: str) -> None:
    for name, value in fields.items():
        browser.run(
            "document.getElementById(arguments[0]).value = arguments[1]", name.replace("_", "-"), value
        )


def submit(browser: Browser, form: str, **fields: str) -> None:
    fill(browser, **fields)
    browser.click(f"#{form} button[type=submit]")


def shown(browser: Browser, text: str, inside: str) -> bool:
    script = "return document.querySelector(arguments[1]).textContent.includes(arguments[0])"
    return bool(browser.run(script, text, inside))


def until(browser: Browser, text: str, inside: str, again: Callable[[], object] = lambda: None) -> None:
    """Until a text is shown; `again` is done while it is not: subscriptions take a while to travel."""
    ends_at = time.monotonic() + SECONDS
    while not shown(browser, text, inside):
        assert time.monotonic() < ends_at, (
            text,
            browser.run("return document.body.innerText"),
            browser.log(),
        )
        again()
        time.sleep(0.3)


def test_a_wrong_password_is_said_and_the_right_one_opens_the_page(browser: Browser, pair: Pair) -> None:
    browser.open(pair.alice.page)
    browser.wait("document.getElementById('login').open")
    submit(browser, "login-form", login_name="ada", login_password="guess")
    until(browser, "wrong name or password", "#login-problem")
    assert browser.run("return document.getElementById('main').hidden")
    submit(browser, "login-form", login_name="ada", login_password=PASSWORD)
    until(browser, "connected", "#state")
    until(browser, "alice", "#name")
    until(browser, "hears bob", "#about")
    visible = (
        "[...document.querySelectorAll('h2')].filter(one => one.offsetParent).map(one => one.textContent)"
    )
    assert browser.run(f"return {visible}") == ["Messages", "Map"]
    browser.click("#details")
    until(browser, "neighbour", "#peers")
    until(browser, "bob", "#peers")
    assert "Load" in browser.run(f"return {visible}")


def test_it_publishes_and_receives_through_two_nodes_and_shows_strangers_text_as_text(
    browser: Browser, pair: Pair
) -> None:
    submit(browser, "subscribe-form", subscribe_filter="to-alice/#?level>3")
    until(browser, "to-alice/#", "#filters")
    hostile = "<img src=x onerror=\"document.title='taken'\">"
    properties = user_property("level", "5")

    def publish() -> None:
        pair.paho.publish("to-alice/<b>bold</b>", hostile.encode(), 1, properties=properties)

    until(browser, hostile, "#feed", publish)
    assert shown(browser, "to-alice/<b>bold</b>", "#feed") and shown(browser, "level=5", "#feed")
    assert browser.run("return document.querySelectorAll('#feed img, #feed b').length") == 0
    fields = {"publish_topic": "to-bob/door", "publish_payload": "open, please"}
    ends_at = time.monotonic() + SECONDS
    while ("to-bob/door", b"open, please") not in pair.heard:
        assert time.monotonic() < ends_at
        submit(browser, "publish-form", **fields)
        time.sleep(0.3)
    until(browser, "to-bob/door", "#passing")
    submit(browser, "publish-form", publish_topic="no/+/topic", publish_payload="")
    until(browser, "no valid topic", "#form-problem")


def test_positions_that_are_published_come_onto_the_map_and_into_the_store(
    browser: Browser, pair: Pair
) -> None:
    submit(browser, "position-form", position_name="ada", position_place="47.3769, 8.5417")
    until(browser, "1 position", "#map-note")
    until(browser, "position/ada", "#stored")
    submit(browser, "position-form", position_name="ada", position_place="nowhere")
    until(browser, "a place is two numbers", "#position-problem")


def test_a_device_shares_where_it_is_until_it_is_told_to_stop(browser: Browser, pair: Pair) -> None:
    where = {"latitude": 47.3771, "longitude": 8.5419, "accuracy": 5}
    browser.developer("Browser.grantPermissions", permissions=["geolocation"], origin=pair.alice.page[:-1])
    browser.developer("Emulation.setGeolocationOverride", **where)
    try:
        pair.paho.subscribe("position/#", 1)
        submit(browser, "position-form", position_name="ada", position_place="47.3769, 8.5417")
        browser.click("#position-here")
        until(browser, "stop sharing", "#position-here")
        ends_at = time.monotonic() + SECONDS
        while not any(topic == "position/ada" and b"47.3771" in said for topic, said in pair.heard):
            assert time.monotonic() < ends_at, browser.run("return document.body.innerText")
            time.sleep(0.1)
        browser.click("#position-here")
        until(browser, "share where I am", "#position-here")
    finally:
        browser.developer("Emulation.clearGeolocationOverride")
    assert "no position" not in browser.run("return document.getElementById('position-problem').textContent")


def test_owntracks_comes_onto_the_map_and_ages_are_told(browser: Browser, pair: Pair) -> None:
    now = int(time.time())
    where = {"_type": "location", "lat": 47.3775, "lon": 8.5432, "tst": now - 600, "batt": 80}

    def publish() -> None:
        pair.paho.publish("owntracks/bob/phone", json.dumps(where).encode(), 1, retain=True)
        pair.paho.publish("owntracks/bob/watch", b'{"_type":"lwt","tst":1}', 1)
        pair.paho.publish("owntracks/eve/phone", b'{"_type":"location","lat":91,"lon":8,"tst":1}', 1)
        pair.paho.publish("owntracks/eve/phone", b"[[[", 1)

    until(browser, "2 positions", "#map-note", publish)
    inside = browser.run(
        """return import('/live/positions.js').then(({positionIn}) => {
             const octets = (said) => new TextEncoder().encode(JSON.stringify(said));
             const of = (topic, said, retained) => positionIn(
               {topic, retained, attributes: [], payload: octets(said)}, 18e8);
             return [of('owntracks/a/b', {_type: 'location', lat: 1, lon: 2, tst: 18e8 - 60}, true),
                     of('position/c', {lat: 1, lon: 2}, true),
                     of('position/c', {lat: 1, lon: 2, tst: 2e9}, false),
                     of('position/c', {lat: 1, lon: 2, tst: 60}, false),
                     of('owntracks/a/b', {_type: 'location', lat: 1, lon: 2, tst: 18e8 - 90000}, false),
                     of('owntracks/a/b', {_type: 'waypoint', lat: 1, lon: 2}, false),
                     of('owntracks/a', {lat: 1}, false)];
           })"""
    )
    assert [one and (one["name"], one["at"]) for one in inside] == [
        ("a/b", 18e8 - 60), ("c", None), ("c", 18e8), ("c", 18e8), ("a/b", 18e8 - 90_000), None, None
    ]  # fmt: skip


CANVAS = """const canvas = document.createElement('canvas');
  canvas.id = 'tried';
  canvas.style = 'position: fixed; top: 0; width: 300px; height: 300px; z-index: 9; touch-action: none';
  document.body.append(canvas);"""
MAP = (
    f"return import('/live/positions.js').then(({{PositionMap}}) => {{ {CANVAS}"
    + """
  const shown = new PositionMap(canvas), octets = (said) => new TextEncoder().encode(JSON.stringify(said));
  const now = Date.now() / 1000;
  const take = (name, lat, lon, tst) => shown.take(
    {topic: `position/${name}`, retained: false, attributes: [], payload: octets({lat, lon, tst})}, now);
  const done = ((map) => { BODY })(shown.map);
  canvas.remove();
  return done; })"""
)


def test_names_on_the_map_cover_nothing_and_what_finds_no_room_is_said(browser: Browser, pair: Pair) -> None:
    body = """
      take('base', 47.3, 8.5, now); take('summit', 47.31, 8.52, now);
      for (let at = 0; at < 9; at++)
        take(`member ${at} of the team`, 47.3001 + at / 1e5, 8.5101, now - 10 * at);
      const boxes = [], draw = map.label.bind(map);
      map.label = (x, y, text, colour, below, size, aside = 0) => {
        const wide = map.widthOf(text, size);
        boxes.push([map.sx(x) + aside - wide / 2, map.sy(y) + below - size / 2, wide, size, text]);
        draw(x, y, text, colour, below, size, aside);
      };
      shown.draw();
      const meet = (a, b, at) => a[at] < b[at] + b[at + 2] && b[at] < a[at] + a[at + 2];
      const covered = boxes.flatMap((a, i) => boxes.slice(i + 1)
        .filter((b) => meet(a, b, 0) && meet(a, b, 1)).map((b) => [a[4], b[4]]));
      const cut = boxes.filter(([x, y, wide, high]) => x < 0 || y < 0 || x + wide > 300 || y + high > 300);
      return [boxes.map((box) => box[4]), covered, cut, shown.unnamed];"""
    names, covered, cut, unnamed = browser.run(MAP.replace("BODY", body))
    assert covered == [] and cut == []
    assert {"base", "summit", "member 0 of the team"} <= set(names), "the newest have theirs"
    assert unnamed > 0 and len(names) == 2 * (11 - unnamed)


def test_a_position_that_was_long_on_its_way_moves_nobody_back(browser: Browser, pair: Pair) -> None:
    body = """
      take('ada', 47, 8, now - 60); take('ada', 46, 7, now - 600); take('eve', 46, 7, now - 90000);
      shown.draw();
      return [...shown.positions.values()].map(({name, y}) => [name, y]);"""
    assert browser.run(MAP.replace("BODY", body)) == [["ada", 47]], "and a day old is gone"


def test_two_fingers_zoom_the_map_and_one_moves_it(browser: Browser, pair: Pair) -> None:
    browser.run(
        f"return import('/map.js').then(({{MapView}}) => {{ {CANVAS}"
        """
             window.tried = new MapView(canvas);
             window.tried.fit({left: 0, bottom: 0, right: 100, top: 100});
             window.tried.begin(); })"""
    )

    def touch(kind: str, *fingers: tuple[int, int]) -> None:
        points = [{"x": x, "y": y, "id": number} for number, (x, y) in enumerate(fingers)]
        browser.developer("Input.dispatchTouchEvent", type=kind, touchPoints=points)

    try:
        touch("touchStart", (100, 150))
        touch("touchStart", (100, 150), (200, 150))
        for apart in (120, 140, 160, 200):
            touch("touchMove", (100, 150), (100 + apart, 150))
        touch("touchEnd")
        browser.wait("Math.abs(tried.zoom - 2) < 0.1")
        before = browser.run("return tried.centreX")
        touch("touchStart", (100, 150))
        for x in (110, 130, 160):
            touch("touchMove", (x, 150))
        touch("touchEnd")
        browser.wait(f"tried.centreX < {before} - 1 && Math.abs(tried.zoom - 2) < 0.1")
    finally:
        browser.run("document.getElementById('tried').remove()")


def test_one_that_does_not_fit_is_named_once_and_is_no_neighbour(browser: Browser, pair: Pair) -> None:
    browser.run(
        """window.asked = window.fetch;
           window.fetch = async (place, ...more) => {
             const answer = await window.asked(place, ...more);
             if (place !== '/node.json') return answer;
             const view = await answer.json(), [peer] = view.status.peers;
             const problem = `${view.status.names[peer.number]} (${peer.number}) has the strategy 'tree'`;
             Object.assign(peer, {other: 'strategy', is_neighbour: false});
             view.status.misfits = [{address: '10.0.0.9', node: peer.number, problem}];
             view.status.problems = [{level: 'error', text: `a neighbour does not fit: 10.0.0.9 ${problem}`}];
             return new Response(JSON.stringify(view)); };"""
    )
    try:
        until(browser, "has the strategy 'tree'", "#problems")
        assert browser.run("return document.querySelectorAll('#problems li').length") == 1
        until(browser, "other strategy", "#peers")
        assert not shown(browser, "neighbour", "#peers tbody")
    finally:
        browser.run("window.fetch = window.asked")


def test_tiles_of_the_device_lie_beneath_the_map(browser: Browser, pair: Pair) -> None:
    drawn = """(() => { const map = document.getElementById('map'), pen = map.getContext('2d');
      const data = pen.getImageData(0, 0, map.width, map.height).data; let count = 0;
      for (let at = 3; at < data.length; at += 4) if (data[at] > 150) count++;
      return count / (data.length / 4) > 0.9; })()"""
    browser.wait(drawn)
    edges = browser.run(
        """return import('/live/ground.js').then(({mercator, latitude}) =>
             [mercator(0), mercator(85.0511), mercator(47.3769) * 65536, latitude(mercator(-33.9))])"""
    )
    assert edges[0] == pytest.approx(0.5) and edges[1] == pytest.approx(0, abs=1e-6)
    gudermann = (1 - math.asinh(math.tan(math.radians(47.3769))) / math.pi) / 2  # by another formula
    assert edges[2] == pytest.approx(gudermann * 65536) and edges[3] == pytest.approx(-33.9)


def test_nothing_is_wider_than_a_phone_and_the_policy_was_never_broken(browser: Browser, pair: Pair) -> None:
    screen = {"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": True}
    browser.developer("Emulation.setDeviceMetricsOverride", **screen)
    try:
        wide = "document.documentElement.scrollWidth"
        assert browser.wait(f"innerWidth === 390 && {wide}") <= 390
        long = "team/" + "verylongtopic" * 4 + "/#"
        submit(browser, "subscribe-form", subscribe_filter=long)
        until(browser, long, "#load")
        beyond = """(() => { const right = (one) => one.getBoundingClientRect().right;
          return [...document.querySelectorAll('.card *')].filter((one) => one.offsetParent
            && !one.closest('.feed') && right(one) > right(one.closest('.card')) + 1); })()"""
        assert browser.run(f"return {beyond}.map((one) => one.outerHTML.slice(0, 80))") == []
        cut = "[...document.querySelectorAll('.scroll')].filter(one => one.scrollWidth > one.clientWidth)"
        assert browser.run(f"return {cut}.map(one => one.querySelector('table').id)") == []
    finally:
        browser.developer("Emulation.clearDeviceMetricsOverride")
    assert [line for line in browser.log() if "Security Policy" in line or "TypeError" in line] == []


def test_a_node_that_vanishes_is_missed_and_found_again_with_the_subscriptions(
    browser: Browser, pair: Pair
) -> None:
    pair.alice.kill()
    until(browser, "the node is not there", "#state")
    assert browser.run("return document.querySelector('#publish-form button').disabled")
    pair.alice.start()
    until(browser, "connected", "#state")
    properties = user_property("level", "7")
    until(
        browser,
        "back again",
        "#feed",
        lambda: pair.paho.publish("to-alice/1", b"back again", 1, properties=properties),
    )


def test_the_whole_mesh_is_drawn_from_what_the_stream_gave_and_its_end_is_said(browser: Browser) -> None:
    board = MeshBoard()
    nodes = {
        0: MeshNode("<i>a</i>", 1, 2_000_000, True, [1], [1], ["leader"]),
        1: MeshNode("b", 1, 2_000_000),
    }
    mesh = MeshState(nodes, {})
    board.on_mesh(WatchedMesh("tree", "field day", msgspec.Raw(mesh.document().encode())))
    with MeshPage(board.document, 0) as page:
        browser.open(page.address)
        until(browser, "2 nodes, 1 part", "#about")
        until(browser, "<i>a</i>", "#nodes")
        until(browser, "leader", "#nodes")
        until(browser, "a layout of their links", "#layout")
        assert browser.run("return document.querySelectorAll('#nodes i').length") == 0
        nodes[1].is_up = False
        board.on_mesh(WatchedMesh("tree", "field day", msgspec.Raw(mesh.document().encode())))
        until(browser, "stopped", "#nodes")
    until(browser, "roamcast watch is not there", "#state")


def user_property(name: str, value: str) -> Properties:
    properties = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
    properties.UserProperty = (name, value)
    return properties

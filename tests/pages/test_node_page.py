"""A node's page in a real browser: two real nodes, a password, a node that vanishes and comes back."""

import signal
import socket
import subprocess
import sys
import time
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
        files = [init(folder / "alice.toml", interface="lo")]
        files.append(init(folder / "bob.toml", like=files[0]))
        ports = [free_port(), free_port()]
        for file, port in zip(files, ports, strict=True):
            text = file.read_text().replace("# port = 4747", f"port = {air}")
            users = f'users = {{ ada = "{PASSWORD}" }}' if file.stem == "alice" else ""
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
    until(browser, "neighbour", "#peers")


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


def test_nothing_is_wider_than_a_phone_and_the_policy_was_never_broken(browser: Browser, pair: Pair) -> None:
    screen = {"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": True}
    browser.developer("Emulation.setDeviceMetricsOverride", **screen)
    try:
        wide = "document.documentElement.scrollWidth"
        assert browser.wait(f"innerWidth === 390 && {wide}") <= 390
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

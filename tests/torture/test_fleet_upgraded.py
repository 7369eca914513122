"""Thirty devices of the release before this one are upgraded one after the other while events flow.

Between the two releases nothing is understood on the air (docs/use/deploy.md), so for a while there are two
meshes. Clients go on publishing at QoS 1 to whatever runs on their device, and nothing that was acknowledged
may be missing when the last device has been upgraded: it is on the disks, and a node reads the files of the
release before it.
"""

import io
import signal
import socket
import subprocess
import sys
import tarfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from paho.mqtt import client as paho
from paho.mqtt.enums import CallbackAPIVersion
from tests.packaging.test_light_install import clean, done

pytestmark = pytest.mark.realtime

ROOT = Path(__file__).parents[2]
RELEASE = "aaf0613"  # 0.2.0
DEVICES = 30
CLIENTS = 5  # that publish, and as many that subscribe, each on a device of its own
PERIOD = 0.5  # seconds between two messages of one client
BETWEEN = 1.0  # seconds between two upgrades
PATIENCE = 180.0  # seconds after the last upgrade


def environment(folder: Path, name: str, source: Path) -> Path:
    done(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder / name, source)
    (wheel,) = (folder / name).glob("roamcast-*.whl")
    made = folder / f"{name}-environment"
    done(sys.executable, "-m", "venv", "--without-pip", made)
    done(sys.executable, "-m", "pip", "--python", made, "install", "--quiet", wheel)
    return made


def source_of(revision: str, folder: Path) -> Path:
    archive = subprocess.run(
        ["git", "archive", revision, "src", "pyproject.toml", "README.md", "LICENSE"],
        cwd=ROOT,
        capture_output=True,
        check=False,
    )
    if archive.returncode != 0:
        pytest.skip(f"the history of this clone does not have {revision}")
    made = folder / f"source-{revision}"
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as packed:
        packed.extractall(made, filter="data")
    return made


def free_ports(count: int, kind: socket.SocketKind) -> list[int]:
    held = [socket.socket(socket.AF_INET, kind) for _ in range(count)]
    for one in held:
        one.bind(("127.0.0.1", 0))
    ports = [int(one.getsockname()[1]) for one in held]
    for one in held:
        one.close()
    return ports


class Device:
    def __init__(self, folder: Path, name: str, mqtt_port: int) -> None:
        self.file = folder / f"{name}.toml"
        self.mqtt_port = mqtt_port
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, release: Path) -> None:
        with self.file.with_suffix(".log").open("ab") as log:
            self._process = subprocess.Popen(
                [release / "bin" / "roamcast", "node", self.file.name],
                cwd=self.file.parent,
                env=clean(),
                stderr=log,
                stdout=log,
            )

    def stop(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)
            self._process.wait(timeout=30)
            self._process = None

    def said(self) -> str:
        return self.file.with_suffix(".log").read_text(errors="replace")


class Publisher:
    """Its numbers are acknowledged in the end, whatever becomes of the node meanwhile."""

    def __init__(self, name: str, device: Device) -> None:
        self.name = name
        self.sent = 0
        self.acknowledged: set[int] = set()
        self._of: dict[int, int] = {}
        self._client = connected(name, device)
        self._client.on_publish = self._on_publish

    def publish(self) -> None:
        self.sent += 1
        told = self._client.publish(f"fleet/{self.name}", str(self.sent), qos=1)
        self._of[told.mid] = self.sent

    def _on_publish(self, client: Any, userdata: Any, mid: int, code: Any, properties: Any) -> None:
        self.acknowledged.add(self._of[mid])

    def close(self) -> None:
        self._client.loop_stop()


class Subscriber:
    def __init__(self, name: str, device: Device) -> None:
        self.got: Counter[tuple[str, int]] = Counter()
        self.is_subscribed = threading.Event()
        self._client = connected(name, device)
        self._client.on_message = self._on_message
        self._client.on_subscribe = lambda *_: self.is_subscribed.set()
        self._client.subscribe("fleet/#", qos=1)

    def _on_message(self, client: Any, userdata: Any, message: paho.MQTTMessage) -> None:
        self.got[message.topic.removeprefix("fleet/"), int(message.payload)] += 1

    def close(self) -> None:
        self._client.loop_stop()


def connected(name: str, device: Device) -> paho.Client:
    """With a session that lasts, so that a restart of its node is a pause."""
    client = paho.Client(CallbackAPIVersion.VERSION2, name, clean_session=False)
    client.reconnect_delay_set(1, 2)
    client.connect("127.0.0.1", device.mqtt_port)
    client.loop_start()
    return client


def wait_until(is_true: Any, seconds: float) -> bool:
    until = time.monotonic() + seconds
    while not is_true():
        if time.monotonic() > until:
            return False
        time.sleep(0.2)
    return True


def listens(device: Device) -> bool:
    with socket.socket() as tried:
        return tried.connect_ex(("127.0.0.1", device.mqtt_port)) == 0


@pytest.mark.timeout(900)
def test_nothing_acknowledged_is_lost_while_a_fleet_is_upgraded(tmp_path: Path) -> None:
    before = environment(tmp_path, "before", source_of(RELEASE, tmp_path))
    now = environment(tmp_path, "now", source_of("HEAD", tmp_path))
    (air_port,) = free_ports(1, socket.SOCK_DGRAM)
    devices = []
    for number, port in enumerate(free_ports(DEVICES, socket.SOCK_STREAM)):
        name = f"device{number:02}"
        like = ("--like", tmp_path / "device00.toml") if number else ("--interface", "lo")
        done(before / "bin" / "roamcast", "node", "--init", tmp_path / f"{name}.toml", *like)
        file = tmp_path / f"{name}.toml"
        text = file.read_text().replace("# port = 4747", f"port = {air_port}")
        file.write_text(f'{text}\n[mqtt]\nport = {port}\nqos1 = "memorized"\n')
        devices.append(Device(tmp_path, name, port))
    publishers: list[Publisher] = []
    subscribers: list[Subscriber] = []
    try:
        for device in devices:
            device.start(before)
        assert wait_until(lambda: all(map(listens, devices)), 120), devices[0].said()
        subscribers = [Subscriber(f"s{one}", devices[one * 2]) for one in range(CLIENTS)]
        assert all(one.is_subscribed.wait(20) for one in subscribers)
        publishers = [Publisher(f"p{one}", devices[-1 - one * 2]) for one in range(CLIENTS)]
        time.sleep(5)
        waiting = iter(devices)
        upgraded_at = time.monotonic() + 5
        is_done = False
        while not is_done:
            for publisher in publishers:
                publisher.publish()
            if time.monotonic() >= upgraded_at:
                upgraded = next(waiting, None)
                if upgraded is None:
                    is_done = True
                else:
                    upgraded.stop()
                    upgraded.start(now)
                    upgraded_at = time.monotonic() + BETWEEN
            time.sleep(PERIOD)
        wait_until(lambda: all(len(one.acknowledged) == one.sent for one in publishers), 60)
        acknowledged = {(one.name, number) for one in publishers for number in one.acknowledged}
        wait_until(lambda: all(acknowledged <= one.got.keys() for one in subscribers), PATIENCE)
        missing = {number: acknowledged - one.got.keys() for number, one in enumerate(subscribers)}
        print(  # noqa: T201
            f"{DEVICES} devices, {sum(one.sent for one in publishers)} published, "
            f"{len(acknowledged)} acknowledged, "
            f"missing {sum(map(len, missing.values()))}, "
            f"doubled {sum(times > 1 for one in subscribers for times in one.got.values())}"
        )
        assert len(acknowledged) == sum(one.sent for one in publishers)
        assert not any(missing.values()), missing
        assert "Traceback" not in "".join(device.said() for device in devices)
    finally:
        for publisher in publishers:
            publisher.close()
        for subscriber in subscribers:
            subscriber.close()
        for device in devices:
            device.stop()

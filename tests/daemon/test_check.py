"""`roamcast check`: a device, before it is carried out."""

import socket
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from roamcast.cli import app
from roamcast.daemon import check as looked
from roamcast.daemon import load_config, write_fresh
from roamcast.runtime.live.linux import LocalDisk
from roamcast.runtime.live.storage.database import NodeStorage
from roamcast.runtime.live.world import Interface


class Interfaces:
    """Of a device that is only thought of."""

    def __init__(self, *found: Interface) -> None:
        self._found = {one.name: one for one in found}

    def names(self) -> list[str]:
        return list(self._found)

    def look(self, name: str) -> Interface | None:
        return self._found.get(name)

    def is_hardware(self, found: Interface) -> bool:
        return not found.name.startswith("veth")

    def is_wireless(self, name: str) -> bool:
        return name.startswith("wl")


def interface(name: str, *, up: bool = True, address: str | None = "10.0.0.1") -> Interface:
    return Interface(name, 1, address, up, name == "lo", 1_500)


def said(path: Path, *found: Interface, now: float = 1.8e9) -> list[str]:
    network = Interfaces(*found or (interface("eth0"),))
    return [f"{one.level} {one.what}: {one.text}" for one in looked.check(path, network, now)]  # type: ignore[arg-type]


def wrong(lines: list[str]) -> list[str]:
    return [line for line in lines if not line.startswith("ok")]


def call(path: Path) -> Result:
    return CliRunner().invoke(app, ["check", str(path)])


def test_a_fresh_device_is_ready_and_each_fault_is_a_line(tmp_path: Path) -> None:
    path = write_fresh(tmp_path / "hut.toml", interface="eth0")
    node = load_config(path).live.identity().node
    lines = said(path)
    assert [line.split()[1] for line in lines] == ["file:", "key:", "interface:", "clock:", "disk:"]
    assert any(line.startswith(f"ok key: hut is node {node}, seals") for line in lines)
    assert wrong(lines) == []
    assert wrong(said(path, interface("eth0", up=False))) == [
        "error interface: eth0 is down or not connected; `ip link set eth0 up`"
    ]
    assert wrong(said(path, interface("wlan0"))) == ["error interface: eth0 is not there; here are wlan0"]
    assert "warning clock: is not set; lifetimes" in "".join(wrong(said(path, now=1e6)))
    (tmp_path / "hut.db").write_bytes(b"SQLite format 3" + bytes(85))
    path.chmod(0o644)
    faults = wrong(said(path))
    assert faults[0].startswith("warning file:") and "chmod 600" in faults[0]
    assert faults[1].endswith("is no storage of a node; name another file in node.state")


def test_a_node_that_runs_or_was_killed_has_a_storage(tmp_path: Path) -> None:
    """Its number is in the log until that is written into the file."""
    path = write_fresh(tmp_path / "hut.toml", interface="eth0")
    storage = NodeStorage(LocalDisk(), tmp_path / "hut.db")
    assert (tmp_path / "hut.db").read_bytes()[68:72] == bytes(4), "else the next line proves nothing"
    assert wrong(said(path)) == []
    storage.close()
    assert wrong(said(path)) == []
    path.write_text(path.read_text().replace('"hut.db"', '"card/hut.db"'))
    assert wrong(said(path)) == [f"error disk: {tmp_path / 'card'} is not there (node.state)"]


@pytest.mark.realtime
def test_ports_that_are_taken_and_interfaces_that_are_left_out_are_named(tmp_path: Path) -> None:
    path = write_fresh(tmp_path / "hut.toml")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        path.write_text(path.read_text() + f"[mqtt]\nport = {port}\n")
        faults = wrong(said(path, interface("veth1"), interface("veth2")))
    assert faults == [
        "warning interface: not used: veth2; air.interfaces names those to use",
        f"error port: mqtt.port is {port} at 127.0.0.1: Address already in use",
    ]
    assert wrong(said(path, interface("veth1"))) == []


def test_the_command_ends_with_1_where_something_keeps_the_device_from_working(tmp_path: Path) -> None:
    path = write_fresh(tmp_path / "hut.toml", interface="nowhere0")
    ended = call(path)
    assert ended.exit_code == 1 and "ERROR   interface nowhere0 is not there" in ended.stdout
    assert ended.stderr == f"roamcast: {path}: this device is not ready\n"
    path.write_text(path.read_text().replace("[air]", "[air]\nprot = 1"))
    ended = call(path)
    assert ended.exit_code == 1 and "air.prot: is no known key (did you mean `port`?)" in ended.stdout
    assert len(ended.stdout.splitlines()) == 1


def test_files_that_a_device_names_and_lacks_are_told(tmp_path: Path) -> None:
    path = write_fresh(tmp_path / "hut.toml", interface="eth0")
    names = '[mqtt]\nport = 0\ntls_client_authority = "team.pem"\n[web]\nport = 0\ntiles = "alps"\n'
    path.write_text(path.read_text() + names)
    lacking = [line for line in wrong(said(path)) if line.startswith("error file")]
    assert [line.split()[2].rpartition("/")[2] for line in lacking] == ["team.pem", "alps"]

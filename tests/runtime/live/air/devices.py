"""Devices for tests of interfaces: network namespaces with `roamcast node`, cables and switches between them.

A cable is a veth pair: both ends notice when one goes down. A switch is a bridge in a namespace of its own: a
port that leaves it cuts a way without a sign at its ends.
"""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path

from roamcast.client.blocking import BlockingClient, connect
from roamcast.daemon.fresh import init
from roamcast.wire.status import NodeStatus

WITHIN = 120.0  # seconds; a busy machine is no failure


@cache
def what_is_missing() -> str | None:
    if os.geteuid() != 0:
        return "network namespaces with cables between them need root"
    for tool in ("unshare", "nsenter", "ip"):
        if shutil.which(tool) is None:
            return f"{tool} is not installed"
    test = "ip link add name a0 type veth peer name a1 && ip link add name br0 type bridge"
    tried = subprocess.run(["unshare", "-n", "sh", "-c", test], capture_output=True, text=True, check=False)
    return None if tried.returncode == 0 else f"no network namespaces with veth and bridge: {tried.stderr}"


def until(condition: Callable[[], object], what: str, seconds: float = WITHIN) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"never: {what}"
        time.sleep(0.02)


class Namespace:
    def __init__(self, stack: ExitStack) -> None:
        # Addresses are there at once, instead of after a second of duplicate address detection.
        setting_up = (
            "ip link set lo up; cd /proc/sys/net/ipv6/conf; echo 0 > default/accept_dad; echo; exec cat"
        )
        self._holder = subprocess.Popen(
            ["unshare", "-n", "sh", "-c", setting_up], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        stack.callback(self._end)
        assert self._holder.stdout is not None
        self._holder.stdout.readline()
        self.process = str(self._holder.pid)

    def _end(self) -> None:
        self._holder.kill()
        self._holder.communicate()

    def inside(self, *command: str) -> list[str]:
        return ["nsenter", "-t", self.process, "-n", *command]

    def ip(self, arguments: str) -> None:
        subprocess.run(self.inside("ip", *arguments.split()), check=True, capture_output=True)


class Device(Namespace):
    """One node, with its file and its log."""

    def __init__(self, stack: ExitStack, config: Path) -> None:
        super().__init__(stack)
        self.config = config
        self._stack = stack

    def call(self, *arguments: str) -> list[str]:
        return self.inside(sys.executable, "-m", "roamcast", *arguments)

    def start(self) -> None:
        with self.config.with_suffix(".log").open("a") as log:
            self._node = subprocess.Popen(
                self.call("node", str(self.config)), cwd=self.config.parent, stderr=log
            )
        self._stack.callback(self._node.wait)
        self._stack.callback(self._node.kill)

    def kill(self) -> None:
        """Without a word to anyone."""
        self._node.kill()
        self._node.wait()

    @property
    def socket(self) -> str:
        return str(self.config.with_suffix(".sock"))

    def log(self) -> str:
        return self.config.with_suffix(".log").read_text()

    @contextmanager
    def client(self) -> Iterator[BlockingClient]:
        """In this process, which costs less than a command; files are the same in all namespaces."""
        with connect(self.socket, wait=WITHIN) as client:
            yield client

    def publish(self, topic: str, payload: str) -> None:
        with self.client() as client:
            client.publish(topic=topic, payload=payload, lifetime=60.0)

    def status(self) -> NodeStatus:
        with self.client() as client:
            return client.status()

    def reached(self) -> dict[str, str]:
        """The addresses of peers that are heard, by interface."""
        return {peer.interface: peer.address for peer in self.status().peers if peer.is_up}

    def received(self, topic: str) -> str:
        """What `roamcast subscribe` prints of one event."""
        command = self.call("subscribe", "-t", topic, "-C", "1", "-W", str(WITHIN), "--socket", self.socket)
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


class Devices:
    """A network of devices; ends with its stack."""

    def __init__(self, stack: ExitStack, folder: Path, strategy: str | None = None, **air: str) -> None:
        """`air`: keys of each node's `[air]` by the node's name, as TOML."""
        self._stack = stack
        self.by_name: dict[str, Device] = {}
        like = init(folder / "network.toml", strategy=strategy)
        for name, keys in air.items():
            config = init(folder / f"{name}.toml", like=like)
            config.write_text(config.read_text().replace("[air]\n", f"[air]\n{keys}\n", 1))
            self.by_name[name] = Device(stack, config)

    def start(self) -> None:
        for device in self.by_name.values():
            device.start()

    def cable(self, one: str, other: str, ipv4: str = "") -> None:
        """`one` and `other`: device and interface, `alice.eth0`. `ipv4`: the first three numbers of their
        network; without it they have IPv6 only."""
        ends = [name.split(".") for name in (one, other)]
        places = [self.by_name[device].process for device, _ in ends]
        arguments = f"link add name {ends[0][1]} netns {places[0]} type veth"
        peer = f"peer name {ends[1][1]} netns {places[1]}"
        subprocess.run(["ip", *arguments.split(), *peer.split()], check=True, capture_output=True)
        for number, (device, interface) in enumerate(ends, 1):
            if ipv4:
                self.by_name[device].ip(f"address add {ipv4}.{number}/24 dev {interface}")
            self.by_name[device].ip(f"link set {interface} up")

    def switch(self, interface: str, ipv4: str) -> Namespace:
        """Connects that interface of all devices; its ports have the devices' names."""
        switch = Namespace(self._stack)
        switch.ip("link add name br0 type bridge")
        switch.ip("link set br0 up")
        for number, (name, device) in enumerate(self.by_name.items(), 1):
            arguments = f"link add name {interface} netns {device.process} type veth"
            peer = f"peer name {name} netns {switch.process}"
            subprocess.run(["ip", *arguments.split(), *peer.split()], check=True, capture_output=True)
            device.ip(f"address add {ipv4}.{number}/24 dev {interface}")
            device.ip(f"link set {interface} up")
            switch.ip(f"link set {name} master br0 up")
        return switch

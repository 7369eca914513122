"""Our OLSR beside a foreign daemon: `olsrd` and `roamcast node` in network namespaces, one mixed network.

    python -m tests.runtime.emulate.interoperation [--shape line,ring,…] [--out DIR] [--json]

Each node has a namespace of its own with one Ethernet-like device; a hub carries frames between neighbours
of the shape only. Some nodes run `olsrd` in its RFC mode, the others `roamcast node` with the underlay `olsr`
in its open mode. A run is right when
- every node's kernel, theirs and ours, has a route to every other node and to none besides, and whoever
  follows the next hops from table to table arrives;
- our routes are shortest, with the number of hops as metric, and so are theirs in a line. Elsewhere theirs
  may be longer (`theirs_longer`): without link qualities olsrd gives every link the cost 0;
- datagrams go there and back between the two ends, through routers of both kinds;
- tshark finds nothing malformed in what the hub carried.

line       five in a row, ours and theirs by turns
ring       five in a ring, three of ours
grid       three by three, theirs in the corners; ours run `chapar` and carry an event across
networks   a line in which one of ours and one of theirs announce a network behind them (HNA)
kernel     a line in which every node runs olsrd, and beside it a node of ours with the underlay `kernel` and
           `chapar`, which carries an event from end to end
alone      a line of three of ours, in the open; needs no olsrd

`olsrd` is found on PATH, or named by the environment variable ROAMCAST_OLSRD. A shape that needs it is
skipped without it, and all are where namespaces are refused; the program says so. Exit code 1
if a run is not right.
"""

import argparse
import itertools
import json
import os
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from roamcast.errors import InputError
from roamcast.runtime.emulate.namespaces import (
    INTERFACE,
    Namespace,
    address_of,
    allow_namespaces,
    die_with_parent,
    enter,
    make_namespaces,
)
from roamcast.sealing import GroupKey, Identity
from roamcast.toml_text import tables_text
from roamcast.underlay.addresses import (
    HostRoute,
    dotted,
    netmask_of,
    parse_dotted,
    parse_network,
    parse_proc_route,
)
from roamcast.units import SECOND
from roamcast.wire.olsr import PORT, MessageType, encode_hna, encode_message, encode_packet

VARIABLE = "ROAMCAST_OLSRD"
HELLO_S, TC_S, HOLD = 0.5, 1.0, 3  # shorter than the RFC's, so that a run takes seconds
PATIENCE_S = 90.0  # for all routes; a quiet machine needs about ten seconds
LOOK_S, NUDGE_EVERY = 0.25, 8  # looks
ECHO_PORT = 4999
EVERYTHING = 65_536


class Shape(NamedTuple):
    nodes: int
    links: list[tuple[int, int]]
    ours: frozenset[int]
    ends: tuple[int, int]  # datagrams go between them
    networks: dict[int, str] = {}  # announced by whom
    event: tuple[int, int] | None = None  # publisher and subscriber, both ours
    beside: bool = False  # olsrd runs everywhere, and ours take their routes from it


LINE = [(number, number + 1) for number in range(4)]
GRID = [(a, a + 1) for a in range(9) if a % 3 < 2] + [(a, a + 3) for a in range(6)]
SHAPES = {
    "line": Shape(5, LINE, frozenset([1, 3]), (0, 4)),
    # Where theirs take the longer way round, the next hop of an odd ring is still nearer by going on.
    "ring": Shape(5, [*LINE, (4, 0)], frozenset([1, 3, 4]), (0, 2)),
    "grid": Shape(9, GRID, frozenset([1, 3, 4, 5, 7]), (0, 8), event=(1, 7)),
    "networks": Shape(5, LINE, frozenset([1, 4]), (0, 4), {0: "172.20.0.0/16", 4: "172.21.0.0/16"}),
    "kernel": Shape(5, LINE, frozenset(range(5)), (0, 4), event=(0, 4), beside=True),
    "alone": Shape(3, LINE[:2], frozenset(range(3)), (0, 2), event=(0, 2)),
}

Row = dict[str, Any]


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--shape", default=",".join(SHAPES))
    arguments.add_argument("--out", type=Path, help="keep configurations, logs and captures here")
    arguments.add_argument("--json", action="store_true")
    options = arguments.parse_args()
    try:
        allow_namespaces()
    except InputError as error:
        return skip(str(error), options.json)
    right = True
    for name in options.shape.split(","):
        shape, daemon = SHAPES[name], found_daemon()
        if daemon is None and (shape.beside or len(shape.ours) < shape.nodes):
            skip(f"no olsrd on PATH and none named by {VARIABLE}", options.json)
            continue
        with folder(options.out, name) as base:
            row = {"shape": name, **run(shape, daemon or "", base)}
        right = right and row["right"]
        print(json.dumps(row) if options.json else "  ".join(f"{key} {value}" for key, value in row.items()))
    return 0 if right else 1


def found_daemon() -> str | None:
    named = os.environ.get(VARIABLE)
    return (
        named
        if named
        else shutil.which("olsrd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
    )


def skip(reason: str, as_json: bool) -> int:
    print(json.dumps({"skipped": reason}) if as_json else f"skipped: {reason}")
    return 0


@contextmanager
def folder(kept: Path | None, name: str) -> Iterator[Path]:
    if kept is not None:
        made = kept / name
        made.mkdir(parents=True, exist_ok=True)
        yield made.resolve()
    else:
        with tempfile.TemporaryDirectory() as temporary:
            yield Path(temporary)


# One run.


def run(shape: Shape, daemon: str, base: Path) -> Row:
    spaces = make_namespaces(shape.nodes)
    home = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    capture = base / "capture.pcap"
    hub = start_hub(shape, spaces, capture)
    processes: list[subprocess.Popen[bytes]] = []
    try:
        group = GroupKey.generate().to_text()
        for space in spaces:
            enter(space.network)
            become_router()
            if space.node in shape.ours:
                command = our_node(shape, space.node, group, base)
                processes.append(start(command, base / f"{space.node}.log"))
            if shape.beside or space.node not in shape.ours:
                command = their_node(shape, space.node, daemon, base)
                processes.append(start(command, base / f"{space.node}.olsrd.log"))
        enter(home)
        began = time.monotonic()
        wrong = wait_for_routes(shape, spaces, home)
        row: Row = {"routes_after_s": round(time.monotonic() - began, 1), "wrong_routes": wrong}
        row["echoes"] = wait_for_echo(shape, spaces, home) if not wrong else 0
        longer = longer_routes(shape, spaces, home)
        row["theirs_longer"] = sum(node not in shape.ours for node, _ in longer)
        if shape.event is not None:
            row["event"] = carry_event(*shape.event, base)
        ended = [process.args for process in processes if process.poll() is not None]
    finally:
        enter(home)
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait()
        left = [describe(route) for node in sorted(shape.ours) for route in routes_in(spaces[node], home)]
        os.kill(hub, signal.SIGTERM)
        os.waitpid(hub, 0)
        for space in spaces:
            os.close(space.network)
            os.close(space.tap)
        os.close(home)
    row |= {"routes_left": left, "ended": ended, **judged_by_tshark(capture)}
    right = not wrong and row["echoes"] and not ended and not left and row.get("event", True)
    return {**row, "right": bool(right and not row["malformed"])}


def wait_for_routes(shape: Shape, spaces: list[Namespace], home: int) -> list[str]:
    """What is wrong with them when nothing is any more, or when patience has ended."""
    until = time.monotonic() + PATIENCE_S
    for number in itertools.count():
        wrong = wrong_routes(shape, spaces, home)
        if not wrong or time.monotonic() > until:
            return wrong
        if number % NUDGE_EVERY == 0:
            for space in spaces:
                nudge(space, number % EVERYTHING)
            enter(home)
        time.sleep(LOOK_S)
    raise AssertionError


def nudge(space: Namespace, number: int) -> None:
    """A change that means nothing: a network behind a gateway that nobody can reach.

    olsrd computes its routes at most once a second. A change that comes sooner waits, with no link qualities
    in its RFC mode, until the next change, which in a network at rest never comes.
    """
    enter(space.network)
    gateway, network = parse_dotted("10.83.250.1"), parse_dotted("172.31.0.0") + (number << 8 & 0xFF00)
    body = encode_hna([(network, netmask_of(24))])
    message = encode_message(MessageType.HNA, 2 * SECOND, gateway, 1, 0, number, body)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, INTERFACE.encode())
        sender.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        sender.sendto(encode_packet(number, [message]), ("255.255.255.255", PORT))


# The nodes.


def become_router() -> None:
    for name, value in [("ip_forward", "1"), ("conf/all/rp_filter", "0"), ("conf/all/send_redirects", "0")]:
        Path("/proc/sys/net/ipv4", name).write_text(value)


def our_node(shape: Shape, node: int, group: str, base: Path) -> list[str]:
    options: dict[str, Any] = {"open": True, "hello_interval": HELLO_S, "tc_interval": TC_S}
    if shape.beside:
        options = {"announcement_interval": HELLO_S}
    networks = [network for announcer, network in shape.networks.items() if announcer != node]
    if node in shape.networks:
        options["networks"] = [shape.networks[node]]
    if networks:
        options["networks_accepted"] = networks
    tables: dict[str, dict[str, Any]] = {
        "node": {"number": node},
        "keys": {"identity": Identity.generate().to_text(), "group": [group]},
        "air": {"interface": INTERFACE},
        "strategy": {"name": "flooding" if shape.event is None else "chapar"},
        "underlay": {"name": "kernel" if shape.beside else "olsr", "options": options},
        "clients": {"socket": str(base / f"{node}.sock")},
    }
    file = base / f"{node}.toml"
    file.write_text(tables_text(tables))
    file.chmod(0o600)
    return [sys.executable, "-m", "roamcast", "node", str(file)]


def their_node(shape: Shape, node: int, daemon: str, base: Path) -> list[str]:
    announced = ""
    if node in shape.networks:
        network, netmask = parse_network(shape.networks[node])
        announced = f"Hna4 {{ {dotted(network)} {dotted(netmask)} }}\n"
    hello, tc = f"{HELLO_S:.1f}", f"{TC_S:.1f}"
    file = base / f"{node}.conf"
    file.write_text(
        f"""DebugLevel 0
IpVersion 4
{announced}LinkQualityLevel 0
UseHysteresis no
FIBMetric "correct"
Pollrate 0.05
LockFile "{base}/{node}.lock"
Interface "{INTERFACE}"
{{
    HelloInterval {hello}
    HelloValidityTime {HELLO_S * HOLD:.1f}
    TcInterval {tc}
    TcValidityTime {TC_S * HOLD:.1f}
    MidInterval {tc}
    MidValidityTime {TC_S * HOLD:.1f}
    HnaInterval {tc}
    HnaValidityTime {TC_S * HOLD:.1f}
}}
"""
    )
    return [daemon, "-f", str(file), "-nofork"]


def start(command: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
    parent = os.getpid()
    with log.open("wb") as output:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            preexec_fn=lambda: die_with_parent(parent),
        )


# The hub.


def start_hub(shape: Shape, spaces: list[Namespace], capture: Path) -> int:
    """A process that copies each frame to the sender's neighbours, and keeps all in a file for tshark."""
    parent = os.getpid()
    hub = os.fork()
    if hub == 0:
        die_with_parent(parent)
        signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
        carry(neighbours_in(shape), [space.tap for space in spaces], capture)
    return hub


def carry(neighbours: dict[int, list[int]], taps: list[int], capture: Path) -> None:
    with capture.open("wb", buffering=0) as file:
        file.write(struct.pack("=IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, EVERYTHING, 1))  # pcap, Ethernet
        while True:
            for tap in select.select(taps, [], [])[0]:
                try:
                    frame = os.read(tap, EVERYTHING)
                except BlockingIOError:
                    continue
                seconds, rest = divmod(time.time_ns() // 1_000, 1_000_000)
                file.write(struct.pack("=IIII", seconds, rest, len(frame), len(frame)) + frame)
                for other in neighbours[taps.index(tap)]:
                    os.write(taps[other], frame)


def neighbours_in(shape: Shape) -> dict[int, list[int]]:
    both_ways = [*shape.links, *((b, a) for a, b in shape.links)]
    return {node: [b for a, b in both_ways if a == node] for node in range(shape.nodes)}


def hops_in(shape: Shape, start_at: int) -> dict[int, int]:
    neighbours, hops, waiting = neighbours_in(shape), {start_at: 0}, deque([start_at])
    while waiting:
        node = waiting.popleft()
        for other in neighbours[node]:
            if other not in hops:
                hops[other] = hops[node] + 1
                waiting.append(other)
    return hops


# What must hold.


def wrong_routes(shape: Shape, spaces: list[Namespace], home: int) -> list[str]:
    """Of every node's kernel: routes that are missing, too many, astray, or, of ours, not shortest."""
    tables = [next_hops(shape, space, home) for space in spaces]
    nodes = range(shape.nodes)
    wrong = [f"{a} has no route to {b}" for a in nodes for b in nodes if a != b and b not in tables[a]]
    wrong += [f"{a} has a route to {b}" for a in nodes for b in tables[a] if b not in nodes]
    if not wrong:
        wrong = [f"{a} does not reach {b}" for a in nodes for b in nodes if not arrives(tables, a, b)]
        judged = nodes if shape.links == LINE else shape.ours
        wrong += [text for node, text in longer_routes(shape, spaces, home) if node in judged]
    return wrong + [text for space in spaces for text in missing_networks(shape, space, home)]


def longer_routes(shape: Shape, spaces: list[Namespace], home: int) -> list[tuple[int, str]]:
    """Whose, and which: those whose next hop is not nearer, or whose metric is not the number of hops."""
    longer = []
    for space in spaces:
        for target, (gateway, metric) in next_hops(shape, space, home).items():
            hops = hops_in(shape, target)
            if hops.get(gateway) != hops[space.node] - 1 or metric != hops[space.node]:
                longer.append((space.node, f"{space.node} reaches {target} by {gateway}, metric {metric}"))
    return longer


def next_hops(shape: Shape, space: Namespace, home: int) -> dict[int, tuple[int, int]]:
    """By node: the next hop and the metric. Addresses that are no node's have numbers below 0."""
    numbers = {parse_dotted(address_of(node)): node for node in range(shape.nodes)}
    return {
        numbers.get(route.destination, -route.destination): (
            numbers.get(route.destination if route.gateway is None else route.gateway, -1),
            route.metric,
        )
        for route in routes_in(space, home)
    }


def arrives(tables: list[dict[int, tuple[int, int]]], start_at: int, target: int) -> bool:
    here = start_at
    for _ in tables:
        if here == target:
            return True
        here = tables[here][target][0]
        if here < 0:
            return False
    return here == target


def missing_networks(shape: Shape, space: Namespace, home: int) -> list[str]:
    """Of the networks that others announce."""
    first_words = {line.split()[1] for line in kernel_table(space, home).splitlines()}
    return [
        f"{space.node} has no route to {text}"
        for announcer, text in shape.networks.items()
        if announcer != space.node and _as_the_kernel_writes(parse_network(text)[0]) not in first_words
    ]


def _as_the_kernel_writes(network: int) -> str:
    return f"{socket.htonl(network):08X}"


def kernel_table(space: Namespace, home: int) -> str:
    enter(space.network)
    try:
        return Path("/proc/thread-self/net/route").read_text()
    finally:
        enter(home)


def routes_in(space: Namespace, home: int) -> list[HostRoute]:
    return parse_proc_route(kernel_table(space, home))


def describe(route: HostRoute) -> str:
    way = "the link" if route.gateway is None else dotted(route.gateway)
    return f"{dotted(route.destination)} by {way} metric {route.metric}"


def wait_for_echo(shape: Shape, spaces: list[Namespace], home: int) -> int:
    """Datagrams there and back between the ends, through the kernels of all routers between them."""
    near, far = (spaces[node] for node in shape.ends)
    ends = []
    for space in (near, far):
        enter(space.network)
        opened = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        opened.bind(("", ECHO_PORT))
        opened.settimeout(0.5)
        ends.append(opened)
    enter(home)
    echoes = 0
    for number in itertools.islice(itertools.count(), 20):
        try:
            ends[0].sendto(bytes([number]), (address_of(far.node), ECHO_PORT))
            data, source = ends[1].recvfrom(100)
            ends[1].sendto(data, source)
            echoes += ends[0].recv(100) == bytes([number])
        except TimeoutError:
            continue
        if echoes >= 3:
            break
    for opened in ends:
        opened.close()
    return echoes


def carry_event(near: int, far: int, base: Path) -> bool:
    """A publisher on one node and a subscriber on another, by their commands."""
    roamcast = [sys.executable, "-m", "roamcast"]
    until = time.monotonic() + PATIENCE_S
    while not all((base / f"{node}.sock").exists() for node in (near, far)) and time.monotonic() < until:
        time.sleep(LOOK_S)
    waiting = subprocess.Popen(
        [
            *roamcast,
            "subscribe",
            "--topic",
            "corner",
            "--count",
            "1",
            "--json",
            "--socket",
            f"{base}/{far}.sock",
        ],
        stdout=subprocess.PIPE,
    )
    while waiting.poll() is None and time.monotonic() < until:  # until the subscription is known over there
        publish = [
            *roamcast,
            "publish",
            "--topic",
            "corner",
            "--payload",
            "x",
            "--socket",
            f"{base}/{near}.sock",
        ]
        subprocess.run(publish, check=True, stdout=subprocess.DEVNULL)
        time.sleep(0.5)
    waiting.terminate()
    output, _ = waiting.communicate()
    return b"corner" in output


def judged_by_tshark(capture: Path) -> Row:
    tshark = shutil.which("tshark")
    if tshark is None:
        return {"malformed": 0, "tshark": "not installed"}

    def count(condition: str) -> int:
        command = [tshark, "-r", str(capture), "-Y", condition, "-T", "fields", "-e", "frame.number"]
        listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        return len(listed.split())

    # Sealed frames of ours have ports that tshark takes for other protocols: only OLSR is judged.
    return {"packets": count("olsr"), "malformed": count("udp.port == 698 && (_ws.malformed || !olsr)")}


if __name__ == "__main__":
    sys.exit(main())

"""Many MQTT clients on one node: does anybody else wait?

    python benchmarks/clients.py [--strategy NAME]... [--scale S] [--json]

Two live nodes on the loopback interface that hear each other (sealed frames). At the first: one client that
subscribes to 10,000 topics in packets of 100; one that subscribes to 1,000 topics in one packet; 500 clients
that connect and subscribe to ten topics each at once; one message for all of them; and the leaving of each.
Meanwhile a witness at each node, a process of its own, publishes to itself every two milliseconds and notes
how long that takes.

Figures of each step:

- `rate`: subscriptions, clients or messages per second of the clock, as seen by who asked for them;
- `cpu`: processor time of the first node for each, microseconds;
- `waits`: the longest time that a witness at the first and at the second node waited, milliseconds. On a busy
  machine it contains the time for which the nodes waited for a core;
- `turn`: the longest turn of each node's event loop, milliseconds of processor time: what a node itself adds;
- `memory`: of the first node after the step, MB.

Exits 1 when a turn takes longer than the goal, 100 ms.
"""

import argparse
import json
import multiprocessing
import selectors
import signal
import socket
import sys
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

from mqtt import Server, connected, read_exactly

GOAL_MS = 100.0
STRATEGIES = ("epidemic", "flooding", "tree", "chapar", "odmrp", "opportunistic")
EVERY_SECONDS = 0.002
SETTLED_SECONDS = 1.5  # after a step, for what the nodes tell each other


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--strategy", action="append", choices=STRATEGIES)
    parser.add_argument("--scale", type=float, default=1.0, help="fewer subscriptions and clients")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--profile", action="store_true", help="where the nodes' time goes")
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    print(
        "strategy      step                             rate/s   cpu us      waits ms        turn ms      MB"
    )
    for strategy in options.strategy or STRATEGIES:
        with Server.line(2, strategy, profiled=options.profile) as server:
            rows += Steps(server, strategy, options.scale, watched=not options.profile).rows()
    if options.json:
        print(json.dumps(rows))
    return 1 if any(turn > GOAL_MS for row in rows for turn in row["turn"]) else 0


class Steps:
    def __init__(self, server: Server, strategy: str, scale: float, *, watched: bool) -> None:
        self._server = server
        self._strategy = strategy
        self._topics = int(10_000 * scale)
        self._at_once = int(1_000 * scale)
        self._clients = int(500 * scale)
        self._watched = watched
        self._rows: list[dict[str, Any]] = []

    def rows(self) -> list[dict[str, Any]]:
        server = self._server
        pipes = []
        witnesses = []
        for port in (server.port, server.last_port):
            ours, theirs = multiprocessing.Pipe()
            process = multiprocessing.Process(target=witness, args=(port, theirs))
            process.start()
            assert ours.recv() == "ready"
            witnesses.append(process)
            pipes.append(ours)
        time.sleep(SETTLED_SECONDS)
        self._step("nothing", 1, lambda: None, pipes)
        many = connected(server.port, b"many")
        self._step(
            "subscriptions of one", self._topics, lambda: subscribe_all(many, self._topics, 100), pipes
        )
        self._step("its leaving", self._topics, lambda: leave([many]), pipes)
        once = connected(server.port, b"once")
        count = self._at_once
        self._step("subscriptions at once", count, lambda: subscribe_all(once, count, count), pipes)
        self._step("its leaving", count, lambda: leave([once]), pipes)
        crowd: list[socket.socket] = []
        self._step(
            "clients, 10 each", self._clients, lambda: crowd.extend(come(server.port, self._clients)), pipes
        )
        self._step("a message for all", self._clients, lambda: tell_all(server.port, crowd), pipes)
        self._step("their leaving", self._clients, lambda: leave(crowd), pipes)
        for process in witnesses:
            process.kill()
            process.join()
        return self._rows

    def _step(self, name: str, count: int, act: Callable[[], object], pipes: list[Connection]) -> None:
        self._turns()
        cpu = self._server.cpu()[0]
        began = time.monotonic_ns()
        act()
        ended = time.monotonic_ns()
        time.sleep(SETTLED_SECONDS)
        waits: list[list[int]] = [[0] for _ in pipes]
        for pipe, found in zip(pipes, waits, strict=True):
            while pipe.poll():
                at, took = pipe.recv()
                if at + took >= began:
                    found.append(took)
        row = {
            "strategy": self._strategy,
            "step": f"{count:,} {name}" if count > 1 else name,
            "rate": count / (ended - began) * 1e9,
            "cpu": (self._server.cpu()[0] - cpu) / count * 1e6,
            "waits": [max(found) / 1e6 for found in waits],
            "turn": self._turns(),
            "memory": self._server.memory() / 1e6,
        }
        self._rows.append(row)
        show(row)

    def _turns(self) -> list[float]:
        return self._server.longest_turns() if self._watched else [0.0]


def show(row: dict[str, Any]) -> None:
    waits = " ".join(f"{one:6.0f}" for one in row["waits"])
    turns = " ".join(f"{one:6.1f}" for one in row["turn"])
    print(
        f"{row['strategy']:13} {row['step']:30} {row['rate']:8,.0f} {row['cpu']:8,.1f}"
        f"  {waits}  {turns}  {row['memory']:6.1f}",
        flush=True,
    )


def witness(port: int, pipe: Connection) -> None:
    """Publish to oneself again and again; tell when and how long each time took."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    link = connected(port, b"witness")
    topic = b"witness/%d" % port
    link.sendall(_subscribe(1, [topic]))
    read_exactly(link, 5)
    packet = b"\x30" + _length(2 + len(topic)) + len(topic).to_bytes(2, "big") + topic
    link.settimeout(2.0)
    pipe.send("ready")
    while True:
        began = time.monotonic_ns()
        while True:
            link.sendall(packet)
            try:
                read_exactly(link, len(packet))
                break
            except TimeoutError:
                continue  # shed by a busy node
        pipe.send((began, time.monotonic_ns() - began))
        time.sleep(EVERY_SECONDS)


def subscribe_all(link: socket.socket, count: int, at_once: int) -> None:
    for first in range(0, count, at_once):
        topics = [b"site/%d/value" % number for number in range(first, min(first + at_once, count))]
        link.sendall(_subscribe(7, topics))
        answer = read_exactly(link, 1 + len(_length(2 + len(topics))) + 2 + len(topics))
        assert set(answer[-len(topics) :]) == {0}, "a subscription was refused"


def come(port: int, count: int) -> list[socket.socket]:
    """All of them at once: each next one does not wait for the answers of the one before."""
    links = []
    for number in range(count):
        link = socket.create_connection(("127.0.0.1", port))
        client = b"crowd-%d" % number
        body = b"\x00\x04MQTT\x04\x02\x00\x00" + len(client).to_bytes(2, "big") + client
        topics = [b"crowd/all"] + [b"crowd/%d/%d" % (number, each) for each in range(9)]
        link.sendall(b"\x10" + _length(len(body)) + body + _subscribe(1, topics))
        links.append(link)
    for link in links:
        answer = read_exactly(link, 4 + 4 + 10)
        assert answer[:4] == b"\x20\x02\x00\x00" and set(answer[-10:]) == {0}
    return links


def tell_all(port: int, crowd: list[socket.socket]) -> None:
    topic, payload = b"crowd/all", bytes(200)
    size = 2 + len(topic) + len(payload)
    packet = b"\x30" + _length(size) + len(topic).to_bytes(2, "big") + topic + payload
    with connected(port, b"speaker") as speaker, selectors.DefaultSelector() as waiting:
        for link in crowd:
            waiting.register(link, selectors.EVENT_READ)
        speaker.sendall(packet)
        left = len(crowd)
        while left:
            for key, _ in waiting.select(10.0):
                assert isinstance(key.fileobj, socket.socket)
                read_exactly(key.fileobj, len(packet))
                left -= 1


def leave(links: list[socket.socket]) -> None:
    for link in links:
        link.close()


def _subscribe(packet_id: int, topics: list[bytes]) -> bytes:
    asked = b"".join(len(topic).to_bytes(2, "big") + topic + b"\0" for topic in topics)
    return b"\x82" + _length(2 + len(asked)) + packet_id.to_bytes(2, "big") + asked


def _length(length: int) -> bytes:
    found = b""
    while length >= 0x80:
        found += bytes([length & 0x7F | 0x80])
        length >>= 7
    return found + bytes([length])


if __name__ == "__main__":
    sys.exit(main())

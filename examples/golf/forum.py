"""The golf forum from a terminal: subscribe, publish, and see notifications as they come.

    python examples/golf/forum.py                             # device 23, ten minutes of the tournament
    python examples/golf/forum.py --member 30 --subscribe "/PGMFORUM[hole = 18]" --until 900
    python examples/golf/forum.py --interactive               # commands, see below
    python examples/golf/forum.py --live roamcast.sock --interactive       # the node of this device

Commands, one per line (also from a pipe):

    subscribe XPATH          e.g. subscribe /PGMFORUM[player = 'woods' and hole > 10]
    want NAME=VALUE …        by categories: want player=woods hole=15
    unsubscribe NUMBER
    publish NAME=VALUE …     e.g. publish player=woods hole=15 message="In with one putt."
    wait SECONDS             let the tournament go on
    quit

In simulation (`forum.toml`, played in virtual time) the other devices do what the scenario says; live, they
are people. Both are a `Forum`: the rest of the program does not know which one it has.
"""

import argparse
import shlex
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple, Protocol, TextIO

from roamcast.errors import InputError, RoamcastError
from roamcast.event import Publication, Value
from roamcast.filter import Filter
from roamcast.node import Node
from roamcast.xml import Schema, read, write

HERE = Path(__file__).parent
TYPE = "PGMFORUM"
STEP = 1.0  # seconds between two looks at what has come


class Notification(NamedTuple):
    at: float  # seconds since the forum was opened
    attributes: dict[str, Value]
    source: int
    hops: int


class Forum(Protocol):
    """One device's way into the forum."""

    def subscribe(self, number: int, wanted: Filter) -> None: ...

    def unsubscribe(self, number: int) -> None: ...

    def publish(self, attributes: dict[str, Value], document: bytes) -> None: ...

    def wait(self, duration: float) -> Iterator[Notification]:
        """Let time pass; what arrives meanwhile, in order."""
        ...

    def close(self) -> None: ...


def main(arguments: list[str] | None = None) -> int:
    options = _options(arguments)
    try:
        schema = Schema.load(HERE / "forum.xsd")
        forum: Forum = (
            LiveForum(options.live) if options.live else SimulatedForum(options.member, options.broker)
        )
        try:
            terminal = Terminal(forum, schema)
            for xpath in options.subscribe:
                terminal.subscribe(xpath)
            if options.interactive:
                terminal.obey(sys.stdin)
            else:
                terminal.wait(options.until)
        finally:
            forum.close()
    except RoamcastError as error:
        say(error, to=sys.stderr)
        return 2
    return 0


class Terminal:
    """Commands in, notifications out."""

    def __init__(self, forum: Forum, schema: Schema) -> None:
        self._forum = forum
        self._schema = schema
        self._subscribed = 0
        self._standing: set[int] = set()  # the numbers of the subscriptions that have not ended
        self._published = 0

    def obey(self, lines: Iterable[str]) -> None:
        for line in lines:
            command, _, rest = line.strip().partition(" ")
            try:
                match command:
                    case "" | "#":
                        continue
                    case "subscribe":
                        self.subscribe(rest)
                    case "want":
                        self.want(rest)
                    case "unsubscribe" if rest.strip().isdecimal():
                        self.unsubscribe(rest.strip())
                    case "publish":
                        self.publish(rest)
                    case "wait" if _is_number(rest):
                        self.wait(float(rest))
                    case "quit":
                        return
                    case _:
                        say("commands: subscribe XPATH, want or publish NAME=VALUE …, unsubscribe N, wait S")
            except RoamcastError as error:
                say(error)

    def subscribe(self, xpath: str) -> None:
        wanted = Filter.xpath(xpath.strip(), self._schema)
        self._subscribed += 1
        self._forum.subscribe(self._subscribed, wanted)
        self._standing.add(self._subscribed)
        say(f"subscription {self._subscribed}: {wanted}")

    def want(self, text: str) -> None:
        """By categories (players, holes, scores), as the form of the paper's figure 7 has them."""
        pairs = [part.partition("=")[::2] for part in _words(text)]
        wanted = " and ".join(
            f"{name} = {value if _is_whole(value) else repr(value)}" for name, value in pairs
        )
        self.subscribe(f"/{TYPE}[{wanted}]" if pairs else f"/{TYPE}")

    def unsubscribe(self, number: str) -> None:
        standing = {str(each): each for each in sorted(self._standing)}
        if number not in standing:
            allowed = ", ".join(standing) or "none, there is no subscription"
            raise InputError(f"unsubscribe {number[:20]}", f"is no subscription; allowed: {allowed}")
        self._forum.unsubscribe(standing[number])
        self._standing.discard(standing[number])
        say(f"unsubscribed {number}")

    def publish(self, text: str) -> None:
        pairs = dict(part.partition("=")[::2] for part in _words(text))
        self._published += 1
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        values: dict[str, Value] = {"@id": f"mine-{self._published}", "@timestamp": now}
        values |= {name: int(value) if _is_whole(value) else value for name, value in pairs.items()}
        document = write(TYPE, values, self._schema)
        self._forum.publish(read(document, self._schema).attributes, document)
        say(f"published {document.decode().partition('?>')[2].strip()}")

    def wait(self, duration: float) -> None:
        for notification in self._forum.wait(duration):
            say(_line(notification))


class SimulatedForum:
    """One device of `forum.toml`. What it gets is read from the trace, as every measurement is."""

    def __init__(self, member: int, broker: bool) -> None:
        from roamcast.runtime.sim import Simulation
        from roamcast.scenario import load_scenario
        from roamcast.trace import Delivered, Published

        scenario = load_scenario(HERE / "forum.toml")
        if not 0 <= member < scenario.nodes:
            raise RoamcastError(f"--member: is {member}; allowed: 0 to {scenario.nodes - 1}")
        if not broker:
            others = [node for node in range(scenario.nodes) if node != member]
            scenario = load_scenario(HERE / "forum.toml", overrides=[f"roles.brokers={others}"])
        self._simulation = Simulation(scenario)
        self._delivered = self._simulation.trace.of(Delivered)
        self._published = self._simulation.trace.of(Published)
        self._seen = 0
        self._member = member
        self._simulation.engine.run(1)  # the devices are switched on

    def subscribe(self, number: int, wanted: Filter) -> None:
        self._node().subscribe(1_000_000 + number, wanted)

    def unsubscribe(self, number: int) -> None:
        self._node().unsubscribe(1_000_000 + number)

    def publish(self, attributes: dict[str, Value], document: bytes) -> None:
        self._node().publish(Publication(attributes, document, type=TYPE))

    def wait(self, duration: float) -> Iterator[Notification]:
        from roamcast.units import micros

        engine = self._simulation.engine
        end = engine.now + micros(duration)
        while engine.now < end:
            engine.run(min(end, engine.now + micros(STEP)))
            yield from self._arrived()

    def close(self) -> None:
        pass

    def _arrived(self) -> Iterator[Notification]:
        import json

        from roamcast.units import seconds

        news, self._seen = self._delivered[self._seen :], len(self._delivered)
        for delivery in news:
            if delivery.node == self._member:
                key = (delivery.publisher, delivery.sequence)
                event = next(p for p in self._published if (p.publisher, p.sequence) == key)
                at, values = seconds(delivery.t), json.loads(event.attributes)
                yield Notification(at, values, delivery.publisher, delivery.hops)

    def _node(self) -> Node:
        node = self._simulation.nodes[self._member]
        assert node is not None, "the scenario crashes nobody"
        return node


class LiveForum:
    """The node that runs on this device, by its local socket (docs/use/clients.md)."""

    def __init__(self, socket: str) -> None:
        from roamcast.client import blocking

        self._open = ExitStack()
        self._client = self._open.enter_context(blocking.connect(socket))
        self._began = time.monotonic()
        self._subscriptions: dict[int, tuple[blocking.BlockingSubscription, ExitStack]] = {}

    def subscribe(self, number: int, wanted: Filter) -> None:
        opened = ExitStack()
        self._subscriptions[number] = (opened.enter_context(self._client.subscribe(wanted)), opened)

    def unsubscribe(self, number: int) -> None:
        if number in self._subscriptions:
            self._subscriptions.pop(number)[1].close()

    def publish(self, attributes: dict[str, Value], document: bytes) -> None:
        self._client.publish(attributes=attributes, payload=document, type=TYPE)

    def wait(self, duration: float) -> Iterator[Notification]:
        end = time.monotonic() + duration
        while time.monotonic() < end:
            if not self._subscriptions:
                time.sleep(STEP / 4)
            for subscription, _ in list(self._subscriptions.values()):
                try:
                    message = subscription.next(timeout=STEP / 4 / len(self._subscriptions))
                except TimeoutError:
                    continue
                at = time.monotonic() - self._began
                yield Notification(at, dict(message.event.attributes), message.event.publisher, message.hops)

    def close(self) -> None:
        for number in list(self._subscriptions):
            self.unsubscribe(number)
        self._open.close()


def say(text: object, *, to: TextIO | None = None) -> None:
    (to or sys.stdout).write(f"{text}\n")
    (to or sys.stdout).flush()


def _line(notification: Notification) -> str:
    said = notification.attributes
    scores = [
        f"{said[name]} {what}"
        for name, what in (("holescore", "strokes"), ("totalscore", "in all"))
        if said.get(name) is not None
    ]
    if said.get("currentrank") is not None:
        scores.append(f"rank {said['currentrank']}")
    if said.get("message") is not None:
        scores.append(str(said["message"]))
    clock = f"{int(notification.at) // 60:02}:{notification.at % 60:06.3f}"
    what = f"{said.get('player')} at hole {said.get('hole')}: {', '.join(scores)}"
    return f"{clock}  {what}  (from {notification.source}, {notification.hops} hops)"


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as error:
        raise InputError(text[:60], f"{error}; allowed: NAME=VALUE with whole quotes") from None


def _is_whole(text: str) -> bool:
    return text.isdecimal() and len(text) < 19


def _is_number(text: str) -> bool:
    try:
        return 0 <= float(text) <= 86_400
    except ValueError:
        return False


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--member", type=int, default=23, help="your device in the scenario, 0 to 53")
    parser.add_argument("--subscribe", metavar="XPATH", action="append", default=[])
    parser.add_argument("--until", type=float, default=600.0, help="seconds")
    parser.add_argument("--interactive", action="store_true", help="obey commands, from a pipe too")
    parser.add_argument(
        "--broker",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="whether your device offers to be a broker; live, the node's file says so (node.broker)",
    )
    parser.add_argument("--live", metavar="SOCKET", help="the node that listens here, not a simulation")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())

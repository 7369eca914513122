"""What a device needs: its node, clients of it, and what an operator asks it."""

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from roamcast.cli.group import fail
from roamcast.cli.options import PATH, as_json, node_socket
from roamcast.errors import InputError

if TYPE_CHECKING:
    from roamcast.client.client import OnProgress
    from roamcast.client.connect import NodePlace


@click.command()
@click.argument(
    "config",
    metavar="[CONFIG.toml]",
    type=PATH,
    default=Path("roamcast.toml"),
    help="The node's file; with --init the one to write. Default: roamcast.toml.",
)
@click.option("--init", is_flag=True, help="Write a commented file with fresh keys, and stop.")
@click.option(
    "--like", metavar="OTHER.toml", type=PATH, help="With --init: for the same network as this node."
)
@click.option(
    "--group-key-file",
    metavar="FILE",
    type=PATH,
    help="With --init: for the network with the group key in this file; - for standard input.",
)
@click.option("--interface", metavar="NAME", help="With --init: e.g. wlan0, or several: eth0,wlan0.")
@click.option("--strategy", metavar="NAME", help="With --init: the strategy, if not the usual one.")
@click.option("--mqtt", is_flag=True, help="With --init: serve MQTT clients on this device.")
@click.option("--web", is_flag=True, help="With --init: serve the page on this device.")
@click.option("--state", metavar="FILE", help="With --init: where the node keeps what survives a restart.")
@click.option("--clients", metavar="SOCKET", help="With --init: the socket where programs find the node.")
def node(config: Path, init: bool, **given: Any) -> None:
    """Run a live node until it is told to stop (Ctrl-C, SIGTERM)."""
    if sys.platform != "linux":
        raise InputError("roamcast node", "runs on Linux only; allowed here: the clients of a node")
    from roamcast import daemon

    if init:
        print(daemon.init(config, **given))
        return
    for name, value in given.items():
        if value:
            raise InputError(
                f"--{name.replace('_', '-')}", "is given without --init; allowed: only beside it"
            )
    daemon.run(config)


@click.command()
@click.argument("config", metavar="CONFIG.toml", type=PATH, help="The node's file.")
def check(config: Path) -> None:
    """Say what is wrong with this device: its file, key, interfaces, clock, disk and ports."""
    if sys.platform != "linux":
        raise InputError("roamcast check", "runs on Linux only; allowed here: the clients of a node")
    from roamcast.daemon import check as looked

    found = looked.check(config)
    for one in found:
        print(f"{one.level.upper() if one.level != 'ok' else 'ok':8}{one.what:10}{one.text}")
    if any(one.level == "error" for one in found):
        fail(f"{config}: this device is not ready")


@click.command()
@click.option("-t", "--topic", default="", show_default=False, help="E.g. alarm/fire.")
@click.option("-m", "--payload", metavar="TEXT")
@click.option("-f", "--file", metavar="FILE", type=PATH, help="The payload; - for standard input.")
@click.option("-l", "--lines", is_flag=True, help="One event for each line of standard input, its payload.")
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="One event for each line of standard input: a JSON object, as `subscribe --json` writes it.",
)
@click.option("-a", "--attribute", metavar="NAME=VALUE", multiple=True, help="E.g. level=5; may be repeated.")
@click.option("--type", default="", show_default=False, help="A dotted event type.")
@click.option(
    "--lifetime", metavar="S", type=float, help="Seconds to keep it for absent and later subscribers."
)
@click.option(
    "--to", metavar="NODE", multiple=True, help="Only to this node, name or number; may be repeated."
)
@click.option("--sealed/--no-sealed", help="Seal it: only holders of the content key can read it.")
@click.option(
    "--reached", metavar="N", type=click.IntRange(1, 1_000), help="Wait until N other nodes confirm it."
)
@click.option(
    "--reached-by", metavar="NODE", multiple=True, help="Wait until this node confirms it; may be repeated."
)
@click.option(
    "--deadline",
    metavar="S",
    type=click.FloatRange(0, 86_400, min_open=True),
    default=5.0,
    help="Seconds to wait for them.",
)
@node_socket
def publish(
    topic: str,
    payload: str | None,
    file: Path | None,
    lines: bool,
    as_json: bool,
    attribute: tuple[str, ...],
    type: str,
    lifetime: float | None,
    to: tuple[str, ...],
    sealed: bool,
    reached: int | None,
    reached_by: tuple[str, ...],
    deadline: float,
    socket: "NodePlace",
) -> None:
    """Publish one event, or one for each line of standard input, through the node on this device."""
    from roamcast.client import commands
    from roamcast.client.asking import PublicationKeywords
    from roamcast.event import EventId

    def show(event: EventId) -> None:
        line = f'{{"publisher":{event.publisher},"sequence":{event.sequence}}}'
        print(line if as_json else f"{event.publisher}:{event.sequence}", flush=True)

    keywords = PublicationKeywords(
        topic=topic,
        attributes=commands.parse_attributes(attribute),
        type=type,
        lifetime=lifetime,
        to=commands.numbers_of(socket, to),
        sealed=sealed,
    )
    if lines or as_json:
        sources = [name for name, given in (("--lines", lines), ("--json", as_json)) if given]
        sources += [name for name, given in (("--reached", reached), ("--reached-by", reached_by)) if given]
        sources += [name for name, given in (("--payload", payload), ("--file", file)) if given is not None]
        if len(sources) > 1:
            raise InputError(" and ".join(sources), "give one of them")
        commands.publish_each(socket, sys.stdin.buffer, show, as_json=as_json, **keywords)
        return
    keywords["payload"] = commands.payload_from(payload, file)
    if reached is None and not reached_by:
        show(commands.publish(socket, _progress() if sys.stderr.isatty() else None, **keywords))
        return
    if reached is not None and reached_by:
        raise InputError("--reached and --reached-by", "give one of them")
    result = commands.publish_reached(socket, reached or reached_by, deadline, keywords)
    show(result.event)
    line = commands.reached_line(result, reached or len(reached_by), deadline)
    if not result.is_complete:
        fail(line)
    print(line)


@click.command()
@click.argument("type", metavar="TYPE", help="A dotted event type.")
@click.option(
    "--seconds",
    metavar="S",
    type=click.FloatRange(0, 1e6),
    help="Seconds that it lasts; without it, until Ctrl-C.",
)
@node_socket
def advertise(type: str, seconds: float | None, socket: "NodePlace") -> None:
    """Announce events of a type through the node on this device, before there are any (strategy odmrp)."""
    from roamcast.client import commands

    commands.advertise(socket, type, lambda: print(f"advertised {type}", flush=True), seconds)


@click.command()
@click.option("-t", "--topic", help="An MQTT topic filter, e.g. alarm/#.")
@click.option("--sql", help="An SQL condition on the attributes.")
@click.option("--type", help="An event type and those below it.")
@click.option("--xpath", help="An XPath on XML events.")
@click.option("--near", metavar="M", type=float, help="Within so many metres of --position, by lat and lon.")
@click.option("--position", metavar="WHERE", help="LAT,LON, gpsd, gpsd:HOST:PORT, or a file with a position.")
@click.option("--addressed", is_flag=True, help="Instead: what others send to this node (publish --to).")
@click.option("--modulator", metavar="NAME", help="The function that a broker applies to the events.")
@click.option("--parameters", metavar="JSON", default="{}", help="The modulator's parameters, as JSON.")
@click.option("-C", "--count", metavar="N", type=int, help="End after so many events.")
@click.option(
    "-W", "--seconds", metavar="S", type=click.FloatRange(0, 1e6), help="End after so many seconds."
)
@node_socket
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
@click.option("-o", "--out-dir", metavar="DIR", type=PATH, help="Write each payload into a file there.")
@click.option(
    "--reconnect/--no-reconnect",
    default=None,
    help="Wait for the node when it stops, and go on; default: on a terminal.",
)
def subscribe(
    topic: str | None,
    sql: str | None,
    type: str | None,
    xpath: str | None,
    near: float | None,
    position: str | None,
    addressed: bool,
    modulator: str | None,
    parameters: str,
    count: int | None,
    seconds: float | None,
    socket: "NodePlace",
    as_json: bool,
    out_dir: Path | None,
    reconnect: bool | None,
) -> None:
    """Show matching events as they reach the node on this device."""
    from roamcast.client import Message, commands

    def show(message: Message) -> None:
        file = None if out_dir is None else commands.write_payload(out_dir, message)
        print((commands.to_json if as_json else commands.to_line)(message, file), flush=True)

    commands.subscribe(
        socket,
        show,
        topic=topic,
        sql=sql,
        type=type,
        xpath=xpath,
        count=count,
        seconds=seconds,
        modulator=modulator,
        parameters=parameters,
        near=near,
        position=position,
        addressed=addressed,
        on_lost=_waits if reconnect or (reconnect is None and sys.stdout.isatty()) else None,
    )


def _waits(problem: str) -> None:
    complain(f"{problem}; waiting for it")


def complain(line: str) -> None:
    print(f"roamcast: {line}", file=sys.stderr, flush=True)


def _progress() -> "OnProgress":
    """Show the progress of a large payload, on one line of the terminal."""
    began = time.monotonic()

    def show(octets: int, size: int) -> None:
        rate = octets / max(time.monotonic() - began, 1e-3)
        left = "" if octets == size else f", {(size - octets) / max(rate, 1.0):.0f} s left"
        line = f"{octets / 1e6:.1f} of {size / 1e6:.1f} MB, {rate / 1e6:.2f} MB/s{left}"
        print(f"\r{line:<60}", end="\n" if octets == size else "", file=sys.stderr, flush=True)

    return show


DEADLINE = click.FloatRange(0, 86_400, min_open=True)


@click.command()
@click.option("-t", "--topic", required=True, help="E.g. door/open.")
@click.option("-m", "--payload", metavar="TEXT")
@click.option("-f", "--file", metavar="FILE", type=PATH, help="The payload; - for standard input.")
@click.option("-a", "--attribute", metavar="NAME=VALUE", multiple=True, help="E.g. level=5; may be repeated.")
@click.option("--deadline", metavar="S", type=DEADLINE, default=5.0, help="Seconds to wait for answers.")
@click.option(
    "--answers",
    metavar="N",
    type=click.IntRange(0, 1_000),
    default=1,
    help="End after so many answers; 0: take all that come until the deadline.",
)
@click.option("--memorized", is_flag=True, help="Keep request and replies for nodes that are away.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object for each answer.")
@node_socket
def request(
    topic: str,
    payload: str | None,
    file: Path | None,
    attribute: tuple[str, ...],
    deadline: float,
    answers: int,
    memorized: bool,
    as_json: bool,
    socket: "NodePlace",
) -> None:
    """Publish a request and print its answers. Exit code 1 if fewer come than are asked for."""
    from roamcast.client import Answer, commands

    def show(answer: Answer) -> None:
        line = commands.answer_json if as_json else commands.answer_line
        print(line(answer), flush=True)

    came = commands.request(
        socket,
        show,
        complain,
        deadline=deadline,
        answers=answers,
        memorized=memorized,
        topic=topic,
        payload=commands.payload_from(payload, file),
        attributes=commands.parse_attributes(attribute),
    )
    if came < max(answers, 1):
        fail(f"{f'{came} of {answers} answers' if came else 'no answer'} came within {deadline:g} s")


@click.command()
@click.option("-t", "--topic", required=True, help="An MQTT topic filter, e.g. door/+/open.")
@click.option(
    "-c",
    "--command",
    metavar="COMMAND",
    help="Gets each request on standard input (its topic: ROAMCAST_TOPIC); prints the answer.",
)
@click.option("-m", "--payload", metavar="TEXT", help="The answer to every request.")
@click.option("-C", "--count", metavar="N", type=click.IntRange(1), help="End after so many answers.")
@node_socket
def reply(
    topic: str, command: str | None, payload: str | None, count: int | None, socket: "NodePlace"
) -> None:
    """Answer requests: by a command, a text, or else the lines of standard input, one for each."""
    from roamcast.client import IncomingRequest, commands

    def show(asked: IncomingRequest) -> None:
        print(commands.request_line(asked), flush=True)

    commands.reply(socket, show, complain, topic=topic, command=command, payload=payload, count=count)


@click.command()
@click.option("-t", "--topic", help="An MQTT topic filter, e.g. site/#.")
@click.option("--sql", help="An SQL condition on the attributes.")
@click.option("--type", help="An event type and those below it.")
@click.option("--xpath", help="An XPath on XML events.")
@click.option("--latest", is_flag=True, help="Only the last event of each topic.")
@click.option("--limit", metavar="N", type=click.IntRange(1, 10_000), default=1_000, help="The newest N.")
@click.option(
    "--deadline",
    metavar="S",
    type=click.FloatRange(0, 600),
    default=2.0,
    help="Seconds for other nodes to bring what this one does not keep.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
@node_socket
def query(
    topic: str | None,
    sql: str | None,
    type: str | None,
    xpath: str | None,
    latest: bool,
    limit: int,
    deadline: float,
    as_json: bool,
    socket: "NodePlace",
) -> None:
    """Show what the mesh has memorized, oldest first."""
    from roamcast.client import commands

    found = commands.query(
        socket,
        topic=topic,
        sql=sql,
        type=type,
        xpath=xpath,
        latest=latest,
        limit=limit,
        deadline=deadline,
    )
    for message, age in zip(found.messages, found.ages, strict=True):
        print(commands.to_json(message, age=age) if as_json else commands.to_line(message))
    if found.cut:
        shown = len(found.messages)
        why = "the newest" if shown == limit else "what one answer holds; subscribe to large ones"
        print(f"roamcast: {shown} of {found.found} events, {why}", file=sys.stderr)


@click.command()
@node_socket
@as_json
def status(socket: "NodePlace", as_json: bool) -> None:
    """Say what the node on this device is and how it is, problems first."""
    from roamcast.client import status as asked

    found = asked.of(socket)
    print(asked.to_json(found) if as_json else asked.to_text(found))


@click.command()
@node_socket
@click.option("--watch", is_flag=True, help="Show it again every second, until Ctrl-C.")
@as_json
def peers(socket: "NodePlace", watch: bool, as_json: bool) -> None:
    """List the nodes that this one hears: where, how well, how long ago."""
    from roamcast.client import status as asked

    for found in asked.each_second(socket) if watch else [asked.of(socket)]:
        if watch and not as_json and sys.stdout.isatty():
            click.clear()
        print(asked.peers_to_json(found) if as_json else asked.peers_to_text(found), flush=True)


@click.command()
@click.argument("event", metavar="EVENT", help="As `roamcast publish` prints it: node:sequence.")
@node_socket
@as_json
def trace(event: str, socket: "NodePlace", as_json: bool) -> None:
    """Tell which way an event went, as far as the node on this device knows."""
    from roamcast.client import status as asked

    found = asked.way_of(socket, event)
    text = asked.to_json(found) if as_json else asked.way_to_text(found)
    if not found.steps and not found.is_stored:
        fail(text)
    print(text)

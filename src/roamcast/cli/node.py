"""What a device needs: its node, and the three clients of it."""

from pathlib import Path

import click

from roamcast.cli.options import PATH, socket
from roamcast.errors import InputError


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
@click.option("--group-key", metavar="KEY", help="With --init: for the network that has this group key.")
@click.option("--interface", metavar="NAME", help="With --init: e.g. wlan0.")
def node(config: Path, init: bool, like: Path | None, group_key: str | None, interface: str | None) -> None:
    """Run a live node until it is told to stop (Ctrl-C, SIGTERM)."""
    from roamcast import daemon

    if init:
        print(daemon.write_fresh(config, group_key=group_key, like=like, interface=interface))
        return
    for name, given in (("--like", like), ("--group-key", group_key), ("--interface", interface)):
        if given is not None:
            raise InputError(name, "is given without --init; allowed: only beside it")
    daemon.run(config)


@click.command()
@click.option("--topic", default="", show_default=False, help="E.g. alarm/fire.")
@click.option("--payload", metavar="TEXT")
@click.option("--file", metavar="FILE", type=PATH, help="The payload; - for standard input.")
@click.option("--attribute", metavar="NAME=VALUE", multiple=True, help="E.g. level=5; may be repeated.")
@click.option("--type", default="", show_default=False, help="A dotted event type.")
@click.option(
    "--lifetime", metavar="S", type=float, help="Seconds to keep it for absent and later subscribers."
)
@click.option("--to", metavar="NODE", type=int, multiple=True, help="Only to this node; may be repeated.")
@click.option("--sealed/--no-sealed", help="For holders of the content key only.")
@socket
def publish(
    topic: str,
    payload: str | None,
    file: Path | None,
    attribute: tuple[str, ...],
    type: str,
    lifetime: float | None,
    to: tuple[int, ...],
    sealed: bool,
    socket: Path,
) -> None:
    """Publish one event through the node on this device."""
    from roamcast.client import commands

    event = commands.publish(
        socket,
        topic=topic,
        attributes=commands.parse_attributes(attribute),
        payload=commands.payload_from(payload, file),
        type=type,
        lifetime=lifetime,
        to=to,
        sealed=sealed,
    )
    print(f"{event.publisher}:{event.sequence}")


@click.command()
@click.argument("type", metavar="TYPE", help="A dotted event type.")
@click.option(
    "--seconds", metavar="S", type=click.FloatRange(0, 1e6), help="How long; without it until Ctrl-C."
)
@socket
def advertise(type: str, seconds: float | None, socket: Path) -> None:
    """Announce events of a type through the node on this device, before there are any (strategy odmrp)."""
    from roamcast.client import commands

    commands.advertise(socket, type, lambda: print(f"advertised {type}", flush=True), seconds)


@click.command()
@click.option("--topic", help="An MQTT topic filter, e.g. alarm/#.")
@click.option("--sql", help="An SQL condition on the attributes.")
@click.option("--type", help="An event type and those below it.")
@click.option("--xpath", help="An XPath on XML events.")
@click.option("--modulator", metavar="NAME", help="What a broker shall make of the events.")
@click.option("--parameters", metavar="JSON", default="{}", help="Of the modulator.")
@click.option("--count", metavar="N", type=int, help="End after so many.")
@socket
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
def subscribe(
    topic: str | None,
    sql: str | None,
    type: str | None,
    xpath: str | None,
    modulator: str | None,
    parameters: str,
    count: int | None,
    socket: Path,
    as_json: bool,
) -> None:
    """Show matching events as they reach the node on this device."""
    from roamcast.client import Message, commands

    def show(message: Message) -> None:
        print(commands.to_json(message) if as_json else commands.to_line(message), flush=True)

    commands.subscribe(
        socket,
        show,
        topic=topic,
        sql=sql,
        type=type,
        xpath=xpath,
        count=count,
        modulator=modulator,
        parameters=parameters,
    )

"""Arguments and options that several commands have."""

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import click

PATH = click.Path(path_type=Path)

scenario = click.argument("scenario", metavar="S.toml", type=PATH, help="The scenario file.")
seed = click.option("--seed", type=int, help="Instead of the scenario's own seed.")
settings = click.option(
    "--set", "settings", metavar="KEY=VALUE", multiple=True,
    help="Override a dotted key, e.g. world.nodes=50.",
)  # fmt: skip
trace_out = click.option(
    "--out", metavar="DIR", type=PATH, help="Write the trace as Parquet; a new or empty folder."
)
as_json = click.option(
    "--json", "as_json", is_flag=True, help="One JSON object on standard output, nothing else."
)


def node_socket(command: Callable[..., None]) -> Callable[..., None]:
    """Where the node on this device is, and how long to wait for it: one value for the command."""

    @wraps(command)
    def with_place(socket: Path, wait: float, **named: Any) -> None:
        from roamcast.client.connect import NodePlace

        command(socket=NodePlace(socket, wait), **named)

    for option in reversed(SOCKET):
        with_place = option(with_place)
    return with_place


def spark(command: Callable[..., None]) -> Callable[..., None]:
    """What every command that uses Spark has. It gets the master; the rest is kept for the session."""

    @wraps(command)
    def with_settings(
        conf: tuple[str, ...], archives: str | None, ui: bool, event_log: str | None, **named: Any
    ) -> None:
        from roamcast.lab.spark import settings

        settings.ask(conf, archives, ui, event_log)
        command(**named)

    for option in reversed(SPARK):
        with_settings = option(with_settings)
    return with_settings


SPARK = (
    click.option(
        "--master", metavar="URL", help="A Spark master; default: embedded, on this machine's cores."
    ),
    click.option("--conf", metavar="KEY=VALUE", multiple=True, help="A setting of Spark; may be repeated."),
    click.option(
        "--archives", metavar="FILE", help="A packed Python environment for the workers of a cluster."
    ),
    click.option("--ui", is_flag=True, help="Serve Spark's own pages while the command runs."),
    click.option("--event-log", metavar="DIR", help="Keep Spark's event log here."),
)

SOCKET = (
    click.option(
        "--socket",
        metavar="PATH",
        type=PATH,
        default=Path("roamcast.sock"),
        envvar="ROAMCAST_SOCKET",
        show_envvar=True,
        help="The node's socket; [clients] in its file. Or its token file.",
    ),
    click.option(
        "--wait",
        metavar="S",
        type=click.FloatRange(0, 86_400),
        default=5.0,
        help="Seconds to wait for a node that is not there yet.",
    ),
)

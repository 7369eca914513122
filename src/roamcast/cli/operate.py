"""What an operator asks the node on this device."""

import sys
from typing import TYPE_CHECKING

import click

from roamcast.cli.options import as_json, node_socket

if TYPE_CHECKING:
    from roamcast.client.connect import NodePlace


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
@click.option("--watch", is_flag=True, help="Again every second, until Ctrl-C.")
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
    print(asked.to_json(found) if as_json else asked.way_to_text(found))

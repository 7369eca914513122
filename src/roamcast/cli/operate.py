"""What an operator asks the node on this device."""

import sys
from pathlib import Path

import click

from roamcast.cli.options import as_json, socket


@click.command()
@socket
@as_json
def status(socket: Path, as_json: bool) -> None:
    """Say what the node on this device is and how it is, problems first."""
    from roamcast.client import status as asked

    found = asked.of(socket)
    print(asked.to_json(found) if as_json else asked.to_text(found))


@click.command()
@socket
@click.option("--watch", is_flag=True, help="Again every second, until Ctrl-C.")
@as_json
def peers(socket: Path, watch: bool, as_json: bool) -> None:
    """List the nodes that this one hears: where, how well, how long ago."""
    from roamcast.client import status as asked

    for found in asked.each_second(socket) if watch else [asked.of(socket)]:
        if watch and not as_json and sys.stdout.isatty():
            click.clear()
        print(asked.peers_to_json(found) if as_json else asked.peers_to_text(found), flush=True)

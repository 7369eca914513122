"""Keys, invitations, and those who are let in by them. Secrets come from files or standard input, never from
the command line, which everyone on the device can read."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from roamcast.cli.options import PATH, node_socket
from roamcast.errors import InputError

if TYPE_CHECKING:
    from roamcast.client.connect import NodePlace

config = click.argument("config", metavar="CONFIG.toml", type=PATH, help="A node's file.")


@click.group()
def key() -> None:
    """Make, show and change keys; invite devices."""


@key.command()
def group() -> None:
    """Print a fresh group key."""
    from roamcast.daemon import keys

    print(keys.fresh("group"))


@key.command()
def content() -> None:
    """Print a fresh content key, for events that relays cannot read."""
    from roamcast.daemon import keys

    print(keys.fresh("content"))


@key.command()
def identity() -> None:
    """Print a fresh identity, for one node."""
    from roamcast.daemon import keys

    print(keys.fresh("identity"))


@key.command()
@config
def show(config: Path) -> None:
    """Say which keys a node's file holds, without the keys."""
    from roamcast.daemon import keys

    for line in keys.described(config):
        print(line)


@key.command()
@config
@click.option("--key-file", metavar="FILE", type=PATH, help="The new key; - for standard input.")
@click.option("--out", metavar="FILE", type=PATH, help="Where a fresh key is written, for the other devices.")
@click.option("--send", is_flag=True, help="Step 2, once every device accepts the new key: seal with it.")
@click.option("--finish", is_flag=True, help="Step 3, once every device seals with it: forget the old ones.")
def rotate(config: Path, key_file: Path | None, out: Path | None, send: bool, finish: bool) -> None:
    """Change the group key in a node's file, in three steps; step 1 accepts the new one."""
    from roamcast.daemon import keys

    if send + finish + (key_file is not None) + (out is not None) > 1:
        raise InputError(
            "rotate", "does one step at a time; allowed: one of --out, --key-file, --send, --finish"
        )
    if send:
        print(f"{config} seals with {keys.send_with_newest(config).id:04x} now")
    elif finish:
        print(f"{config} accepts {keys.keep_first(config).id:04x} only")
    else:
        print(f"{config} accepts {keys.accept_new(config, key_file=key_file, out=out).id:04x} too")
    print("a running node reads it on SIGHUP", file=sys.stderr)


@key.command()
@config
@click.option(
    "--hours",
    metavar="H",
    type=click.FloatRange(0, 8_760, min_open=True),
    default=1.0,
    help="Hours until it expires.",
)
@click.option(
    "--content",
    "with_content",
    is_flag=True,
    help="Include the content keys: the device may read sealed events.",
)
@click.option("--qr/--no-qr", default=None, help="Show it as a QR code too; default: on a terminal.")
def invite(config: Path, hours: float, with_content: bool, qr: bool | None) -> None:
    """Print an invitation into the network of a node's file. It is a secret: it holds the group key."""
    from roamcast.daemon import keys

    text = keys.invite(config, seconds=hours * 3600, with_content=with_content)
    print(text)
    if qr or (qr is None and sys.stdout.isatty()):
        _show_code(text, is_wanted=qr is True)


@key.command()
@click.argument("device", metavar="NODE", help="The lost device's name or number.")
@click.option("--undo", is_flag=True, help="It was found: accept it again.")
@node_socket
def revoke(device: str, undo: bool, socket: "NodePlace") -> None:
    """Exclude a lost device, through the node on this device: every member that hears of it does the same."""
    from roamcast.client import commands

    number = commands.revoke(socket, device, undo=undo)
    called = f"node {number}" if device == str(number) else f"{device}, node {number},"
    print(f"{called} is {'accepted again' if undo else 'revoked'}")


@key.command()
@click.argument("device", metavar="NODE", help="The device's number, or its name.")
@node_socket
def forget(device: str, socket: "NodePlace") -> None:
    """Let another device have a configured number, on the node of this device: its key is pinned anew."""
    from roamcast.client import commands

    number = commands.forget(socket, device)
    print(f"the next device that announces number {number} has it")


@key.command()
@click.option("--file", metavar="FILE", type=PATH, help="Where the password is; - for standard input.")
def password(file: Path | None) -> None:
    """Print the hash of a password, for `users` in a node's file. On a terminal it asks for it."""
    from roamcast.daemon.fresh import secret_from
    from roamcast.gateway.access import hashed

    is_asked = file is None and sys.stdin.isatty()
    text = (
        click.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
        if is_asked
        else secret_from(file or Path("-"))
    )
    print(hashed(text))


@click.command()
@click.argument("config", metavar="CONFIG.toml", type=PATH, help="The new node's file, to be written.")
@click.option(
    "--invitation",
    metavar="FILE",
    type=PATH,
    default=Path("-"),
    help="The file with the invitation; - for standard input.",
)
@click.option("--interface", metavar="NAME", help="E.g. wlan0.")
@click.option("--modules", is_flag=True, help="Load the Python modules that it names: they run as this user.")
def join(config: Path, invitation: Path, interface: str | None, modules: bool) -> None:
    """Write the file of a new node from an invitation: its network, and an identity of its own."""
    from roamcast.daemon import keys
    from roamcast.daemon.fresh import secret_from

    if str(invitation) == "-" and sys.stdin.isatty():
        print("Paste the invitation, then Ctrl-D:", file=sys.stderr)
    print(keys.join(config, secret_from(invitation), interface=interface, modules=modules))


def _show_code(text: str, *, is_wanted: bool) -> None:
    try:
        import segno
    except ModuleNotFoundError:
        if is_wanted:
            raise InputError("--qr", "needs segno; allowed: pip install 'roamcast[qr]'") from None
        return
    segno.make(text, error="m").terminal(compact=True)

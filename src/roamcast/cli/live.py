"""The traces of running nodes: brought together, watched as they come in, archived and queried."""

import sys
from functools import partial
from typing import TYPE_CHECKING

import click

from roamcast.cli import options
from roamcast.cli.group import fail

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]


@click.command()
@click.argument("sources", metavar="FROM…", nargs=-1, required=True, help="Folders that nodes trace into.")
@click.option("--out", metavar="DIR", required=True, help="Where the segments go; may hold earlier ones.")
def collect(sources: tuple[str, ...], out: str) -> None:
    """Bring the trace segments of many nodes together, each checked. FROM and DIR may be URIs."""
    from roamcast.lab.live.collect import collect as run

    found = run(sources, out)
    for line in found.refused:
        print(f"roamcast: not copied: {line}", file=sys.stderr)
    print(f"{found.copied} segments copied to {out}, {found.there_before} were there already")
    if found.refused:
        fail(f"{len(found.refused)} segments could not be copied")


@click.command()
@click.argument("folder", metavar="DIR", help="Where trace segments are collected; may be a URI.")
@click.option("--out", metavar="DIR", required=True, help="Where the tables and the state go; may be a URI.")
@click.option("--window", metavar="S", type=float, default=10.0, help="Length of a window in seconds.")
@click.option(
    "--late",
    metavar="S",
    type=float,
    default=120.0,
    help="Seconds by which a segment may be late and still count.",
)
@click.option("--once/--no-once", help="Process the segments that are there, and stop.")
@click.option("--web/--no-web", help="Show the whole mesh on a page, on this machine, until Ctrl-C.")
@click.option(
    "--port",
    metavar="N",
    type=click.IntRange(0, 65_535),
    default=8748,
    help="The port of the page; 0: any free one.",
)
def watch(folder: str, out: str, window: float, late: float, once: bool, web: bool, port: int) -> None:
    """Delivery, latency and control traffic of running nodes, by windows, as their traces come in."""
    from roamcast.lab.live.screen import WindowScreen
    from roamcast.lab.live.streaming import watch as run

    def unread(line: str) -> None:
        print(f"roamcast: not counted: {line}", file=sys.stderr)

    watched = partial(run, folder, out, window_s=window, late_s=late, once=once)
    if not web:
        with WindowScreen() as screen:
            watched(on_table=screen, on_unread=unread)
        return

    from roamcast.cli.mesh_page import MeshPage
    from roamcast.lab.live.board import MeshBoard

    board = MeshBoard.of(out)
    with MeshPage(board.document, port) as page, WindowScreen() as screen:
        print(f"the mesh is at {page.address}", flush=True)

        def both(changed: "pa.Table") -> None:
            board.on_table(changed)
            screen(changed)

        def named(line: str) -> None:
            board.on_unread(line)
            unread(line)

        watched(on_table=both, on_unread=named, on_mesh=board.on_mesh)
        if once:
            page.wait()


@click.group()
def archive() -> None:
    """Keep the events of live traces, and query them with the filters that subscribers use."""


@archive.command()
@click.argument("folder", metavar="DIR", help="Where trace segments are collected; may be a URI.")
@click.option("--out", metavar="ARCHIVE", required=True, help="The archive; new, or one that grows.")
def add(folder: str, out: str) -> None:
    """Add what was published in the segments of DIR, each segment once."""
    from roamcast.lab.live.archive import add_segments

    added = add_segments(folder, out)
    for line in added.refused:
        print(f"roamcast: not read: {line}", file=sys.stderr)
    print(f"{added.events} events of {added.segments} segments added to {out}")
    if added.refused:
        fail(f"{len(added.refused)} segments could not be read")


@archive.command()
@click.argument("text", metavar="FILTER", help="As in a subscription: level > 3 AND room LIKE 'B%'.")
@click.option("--archive", "folder", metavar="ARCHIVE", required=True, help="What `archive add` wrote.")
@click.option("--since", metavar="TIME", help="2026-05-01, 2026-05-01T12:30, or Unix seconds; UTC.")
@click.option("--until", metavar="TIME", help="The end, in the same form; not included.")
@click.option("--limit", metavar="N", type=click.IntRange(1), default=1_000, help="The oldest N.")
@options.as_json
@options.spark
def query(
    text: str,
    folder: str,
    since: str | None,
    until: str | None,
    limit: int,
    as_json: bool,
    master: str | None,
) -> None:
    """The archived events that a subscription with this filter would have got, oldest first."""
    from roamcast.lab.live.archive import query as run

    found = run(folder, text, since=since, until=until, limit=limit, master=master)
    print(found.to_json() if as_json else found.to_text())

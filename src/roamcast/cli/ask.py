"""Requests, replies and queries through the node on this device."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from roamcast.cli.group import fail
from roamcast.cli.options import PATH, node_socket

if TYPE_CHECKING:
    from roamcast.client.connect import NodePlace

DEADLINE = click.FloatRange(0, 86_400, min_open=True)


@click.command()
@click.option("-t", "--topic", required=True, help="E.g. door/open.")
@click.option("-m", "--payload", metavar="TEXT")
@click.option("-f", "--file", metavar="FILE", type=PATH, help="The payload; - for standard input.")
@click.option("-a", "--attribute", metavar="NAME=VALUE", multiple=True, help="E.g. level=5; may be repeated.")
@click.option("--deadline", metavar="S", type=DEADLINE, default=5.0, help="Seconds to wait for answers.")
@click.option(
    "--answers", metavar="N", type=click.IntRange(0, 1_000), default=1, help="Enough; 0: all until then."
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

    def complain(line: str) -> None:
        print(f"roamcast: {line}", file=sys.stderr, flush=True)

    commands.reply(socket, show, complain, topic=topic, command=command, payload=payload, count=count)


@click.command()
@click.option("-t", "--topic", help="An MQTT topic filter, e.g. site/#.")
@click.option("--sql", help="An SQL condition on the attributes.")
@click.option("--type", help="An event type and those below it.")
@click.option("--xpath", help="An XPath on XML events.")
@click.option("--latest", is_flag=True, help="Of each topic the last one only.")
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
        print(f"roamcast: {len(found.messages)} of {found.found} events, the newest", file=sys.stderr)

"""Commands, options and defaults that the pages name are those of the code."""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import click
import msgspec
import pytest
from msgspec import inspect

from roamcast.cli import app
from roamcast.daemon.config import Config
from roamcast.gateway.options import BridgeOptions, LocalOptions, MqttOptions, WebOptions
from roamcast.strategy import LIVE_DEFAULT

ROOT = Path(__file__).parents[1]
PAGES = [*sorted((ROOT / "docs").rglob("*.md")), *(ROOT / f"{name}.md" for name in ("README", "ARTIFACT"))]
CALL = re.compile(r"(?<![\w./-])roamcast ([a-z]+)\b([^`|;&#)\n]*)")
UNITS = {"KiB": 1 << 10, "MiB": 1 << 20}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_command_and_option_in_code_exists(page: Path) -> None:
    for name, rest in calls(page.read_text()):
        command = app.get_command(click.Context(app), name)
        assert command is not None, f"roamcast {name}"
        words = rest.split()
        if isinstance(command, click.Group):
            if not words or words[0].startswith("-"):
                continue
            command = command.get_command(click.Context(command), words[0])
            assert command is not None, f"roamcast {name} {words[0]}"
        known = {text for one in command.params for text in (*one.opts, *one.secondary_opts)} | {"--help"}
        named = {word.split("=")[0].strip("[]…") for word in words if re.match(r"\[?--\w", word)}
        assert named <= known, f"roamcast {name}: {sorted(named - known)}"


def calls(page: str) -> Iterator[tuple[str, str]]:
    blocks = re.findall(r"^```(?:console|text)?\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    inline = re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```$", "", page, flags=re.MULTILINE | re.DOTALL))
    for code in (*(line for block in blocks for line in block.splitlines()), *inline):
        if re.match(r"(?:[#$] )?(?:\w+=\S+ )*roamcast ", code):
            yield from CALL.findall(code)


OF_NODES = {field.name: field.type for field in msgspec.structs.fields(Config)}
TABLES = [("mqtt", MqttOptions), ("web", WebOptions), ("bridge", BridgeOptions), ("clients", LocalOptions)]


@pytest.mark.parametrize(("page", "options"), TABLES, ids=[name for name, _ in TABLES])
def test_the_defaults_of_a_gateway_are_those_of_its_options(page: str, options: type[Any]) -> None:
    fields = {field.name: field for field in msgspec.structs.fields(options)}
    compared = 0
    for names, values in rows_of(ROOT / "docs" / "use" / f"{page}.md"):
        for name, value in zip(names, values, strict=True):
            if name in fields and value is not None:
                assert fields[name].default == value, name
                compared += 1
    assert compared > (0 if options is LocalOptions else 2)


def test_the_defaults_of_a_node_are_those_of_its_tables() -> None:
    compared = 0
    for (name, *_), (value, *_) in rows_of(ROOT / "docs" / "use" / "live.md"):
        table, _, key = name.partition(".")
        if not key or value is None or table not in OF_NODES:
            continue
        assert default_in(table, key) == value, name
        compared += 1
    assert compared > 15


def default_in(table: str, key: str) -> Any:
    """What a node has whose file does not name the key."""
    if (table, key) == ("strategy", "name"):
        return LIVE_DEFAULT
    info = inspect.type_info(OF_NODES[table])
    parts = info.types if isinstance(info, inspect.UnionType) else (info,)
    (struct,) = [part.cls for part in parts if isinstance(part, inspect.StructType)]
    (found,) = [field.default for field in msgspec.structs.fields(struct) if field.name == key]
    return getattr(found, "value", found)


def rows_of(page: Path) -> Iterator[tuple[list[str], list[Any]]]:
    """Keys and defaults of each row of the tables with keys; None for a default that is told in words."""
    for line in page.read_text().splitlines():
        cells = [cell.strip() for cell in line.split("|")[1:-1]]
        if len(cells) == 3 and cells[0].startswith("`"):
            names = re.findall(r"`([\w.]+)`", cells[0])
            values = [value_in(text) for text in re.split(r", | (?=\d|`)", cells[1])]
            if len(names) == len(values):
                yield names, values


def value_in(text: str) -> Any:
    text = text.strip("` ")
    if number := re.fullmatch(r"(-?[\d,_.]+)(?: (KiB|MiB))?", text):
        plain = number[1].replace(",", "").replace("_", "")
        return (float(plain) if "." in plain else int(plain)) * UNITS.get(number[2], 1)
    if quoted := re.fullmatch(r'"([^"]*)"', text):
        return quoted[1]
    return {"true": True, "false": False}.get(text)


# Of podman, of SUMO, and of Spark's workers.
FOREIGN = {"--network", "--fcd-output", "--cores", "--memory", "--work-dir"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_option_that_stands_alone_is_one_of_some_command(page: Path) -> None:
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    named = {word for code in re.findall(r"`(--[^`\n]+)`", text) for word in re.findall(r"--[a-z-]+\b", code)}
    unknown = named - options_of(app) - FOREIGN
    assert {word for word in unknown if f'"{word}"' not in scripts()} == set()


@cache
def scripts() -> str:
    folders = ROOT / "benchmarks", ROOT / "examples"
    return "\n".join(path.read_text() for folder in folders for path in folder.rglob("*.py"))


def options_of(command: click.Command) -> set[str]:
    found = {text for one in command.params for text in (*one.opts, *one.secondary_opts)} | {"--help"}
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None
            found |= options_of(inner)
    return found

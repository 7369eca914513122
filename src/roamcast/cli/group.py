"""Which commands there are, and how a command ends: 0 done, 1 the work failed, 2 bad input."""

import sys
from importlib import import_module
from typing import NoReturn

import click

from roamcast import __version__
from roamcast.errors import InputError, RoamcastError
from roamcast.extras import NOT_ON_A_DEVICE

SECTIONS = {
    "A node, and what it says": {
        "node": "node",
        "check": "node",
        "join": "keys",
        "key": "keys",
        "status": "node",
        "peers": "node",
        "trace": "node",
    },
    "Programs of a node": {
        "publish": "node",
        "subscribe": "node",
        "request": "node",
        "reply": "node",
        "query": "node",
        "advertise": "node",
    },
    "Traces of running nodes": {"collect": "live", "watch": "live", "archive": "live"},
    "The laboratory": {
        "simulate": "run",
        "emulate": "run",
        "fault": "run",
        "metrics": "run",
        "why": "run",
        "play": "run",
        "sweep": "study",
        "report": "study",
        "reproduce": "study",
        "league": "study",
        "contacts": "study",
        "groups": "study",
        "demo": "study",
        "strategies": "run",
        "parts": "run",
    },
}
"""Each command and the module here that defines it under its name, in the order of `--help`."""
COMMANDS = {name: module for commands in SECTIONS.values() for name, module in commands.items()}

EXTRA_OF = {"run": "sim", "study": "lab", "live": "lab"}
"""What the commands of a module need beyond a device's installation."""

ONLY_ON_LINUX = {"fcntl", "pwd", "resource", "termios"}
"""Modules that Windows does not have. A node needs them, its clients do not."""


class Commands(click.Group):
    """Commands that are imported when they are called; the one place that turns errors into exit codes."""

    def list_commands(self, context: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        command = getattr(import_module(f"roamcast.cli.{COMMANDS[name]}"), name)
        assert isinstance(command, click.Command), name
        return command

    def resolve_command(
        self, context: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does it, but it says what may be meant, as for options and keys of files."""
        if args[0] not in COMMANDS and not context.resilient_parsing:
            from roamcast.explain import unknown

            fail(f"{args[0]}: {unknown(args[0], list(COMMANDS), 'is no command')}", 2)
        return super().resolve_command(context, args)

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """As click does it, but with whole sentences: click itself cuts them at the width of one line."""
        for title, names in SECTIONS.items():
            commands = {name: self.get_command(context, name) for name in names}
            with formatter.section(title):
                formatter.write_dl(
                    [
                        (name, found.get_short_help_str(limit=1000))
                        for name, found in commands.items()
                        if found
                    ]
                )

    def invoke(self, context: click.Context) -> object:
        """The user's faults become one line and exit code 2; work that failed, one line and exit code 1."""
        try:
            return super().invoke(context)
        except RoamcastError as error:
            fail(str(error), 2 if isinstance(error, InputError) else 1)
        except ModuleNotFoundError as error:
            package = (error.name or "").split(".")[0]
            if package in ONLY_ON_LINUX:
                fail(
                    f"{context.invoked_subcommand} runs on Linux only; allowed here: the clients of a node", 2
                )
            module = COMMANDS.get(context.invoked_subcommand or "", "")
            if package not in NOT_ON_A_DEVICE or module not in EXTRA_OF:
                raise
            fail(
                f"{context.invoked_subcommand} needs more than a device has ({package} is not installed); "
                f"allowed: pip install 'roamcast[{EXTRA_OF[module]}]'"
            )
        except KeyboardInterrupt:
            fail("interrupted")


@click.group(
    cls=Commands,
    help="Publish/subscribe for networks that move: run nodes, use them, study them.",
    context_settings={"show_default": True},
)
@click.version_option(__version__, message="roamcast %(version)s", help="Print the version and stop.")
def app() -> None:
    pass


def fail(line: str, code: int = 1) -> NoReturn:
    """One line, and the command ends."""
    print(f"roamcast: {line}", file=sys.stderr)
    raise click.exceptions.Exit(code)


def main() -> None:
    app()

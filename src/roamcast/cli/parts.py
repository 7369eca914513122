"""What a file can name: strategies and the other parts, plug-ins too."""

from pathlib import Path

import click

from roamcast.cli import options

NAME = click.argument("name", metavar="[NAME]", required=False, help="Show its options too.")
MODULES = click.option(
    "--module", "modules", metavar="MODULE", multiple=True, help="Load a plug-in of this folder first."
)


@click.command()
@NAME
@MODULES
@options.as_json
def strategies(name: str | None, modules: tuple[str, ...], as_json: bool) -> None:
    """The strategies there are, plug-ins too; with a name, its options and what they mean."""
    show("strategies", name, modules, as_json)


@click.command()
@click.argument("kind", metavar="[KIND]", required=False, help="E.g. underlays, metrics.")
@NAME
@MODULES
@options.as_json
def parts(kind: str | None, name: str | None, modules: tuple[str, ...], as_json: bool) -> None:
    """Everything that a file can name: strategies, underlays, modulators, models, metrics."""
    from roamcast.parts import kinds

    if kind is None:
        print("\n".join(kinds()))
    else:
        show(kind, name, modules, as_json)


def show(kind: str, name: str | None, modules: tuple[str, ...], as_json: bool) -> None:
    from roamcast.parts import describe, to_json, to_text
    from roamcast.plugins import load_modules

    load_modules(modules, Path(), "--module")
    found = describe(kind, name)
    print(to_json(found) if as_json else to_text(found))

"""Arguments and options that several commands have."""

from pathlib import Path

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
master = click.option(
    "--master", metavar="URL", help="A Spark master; default: embedded, on this machine's cores."
)

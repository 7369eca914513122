"""What the chaos suites share: a sweep of short runs, ways to damage its folder, and what must be equal."""

from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]

from roamcast.lab.sweep.experiment import Experiment, experiment_from
from roamcast.lab.sweep.folder import TRACE_TABLES
from roamcast.lab.sweep.results import Results
from roamcast.scenario import read_tables

TABLES = TRACE_TABLES
LINKS = """
[scenario]
name = "links"
duration = 4.0
[world]
contacts = "0.csv"
[workload]
rate = 4.0
[strategy]
name = "flooding"
"""


def experiment_in(base: Path, runs: int) -> Experiment:
    """Two seeds of each rate; a few milliseconds each."""
    base.mkdir(exist_ok=True)
    (base / "0.csv").write_text("time,i,j,state\n0,0,1,up\n0.5,1,2,up\n")
    (base / "links.toml").write_text(LINKS)
    seeds = 2 if runs > 1 else 1
    rates = [1.0 + 0.25 * number for number in range(runs // seeds)]
    tables = read_tables(base / "links.toml")
    return experiment_from("links", tables, {"workload.rate": rates}, base=base, replications=seeds)


def damaged_in_every_way(out: Path, random: Random | None = None) -> list[Path]:
    """Each fault in a segment of its own; the files that must be named."""
    draw = random or Random(1)
    manifests = sorted((out / "manifest").iterdir())
    draw.shuffle(manifests)
    faults = []
    for way in WAYS:
        for kind in ("manifest", draw.choice(["deliveries", "expected", "publications", "transmissions"])):
            if kind == "manifest" and way is deleted:
                continue  # a run that is not there is no fault
            manifest = manifests.pop()
            file = manifest if kind == "manifest" else out / kind / f"{manifest.stem}.parquet"
            way(file, draw)
            faults.append(file)
    for extra in (out / "deliveries" / "notes.parquet", out / "metrics" / "old.parquet"):
        extra.parent.mkdir(exist_ok=True)
        extra.write_bytes(b"of another sweep")
        faults.append(extra)
    return faults


def deleted(file: Path, draw: Random) -> None:
    file.unlink()


def cut(file: Path, draw: Random) -> None:
    content = file.read_bytes()
    file.write_bytes(content[: draw.randrange(1, len(content))])


def changed(file: Path, draw: Random) -> None:
    content = bytearray(file.read_bytes())
    content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
    file.write_bytes(content)


def emptied(file: Path, draw: Random) -> None:
    file.write_bytes(b"")


def exchanged(file: Path, draw: Random) -> None:
    """For another file of its own kind."""
    file.write_bytes(next(other for other in sorted(file.parent.iterdir()) if other != file).read_bytes())


WAYS = (deleted, cut, changed, emptied, exchanged)


def steady(results: Results) -> Any:
    """All figures but those of the clock."""
    return {name: values for name, values in results.figures.items() if name != "wall_s"}


def same_rows(one: Path, other: Path) -> bool:
    """Whether two folders hold the same rows, in whichever order."""
    return all(_rows(one / name) == _rows(other / name) for name in TABLES)


def _rows(folder: Path) -> list[str]:
    if not folder.exists():
        return []
    table: pa.Table = pq.read_table(folder)
    return sorted(repr(sorted(row.items())) for row in table.to_pylist())

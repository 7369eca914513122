"""Who takes part in which scenarios: the league as an experiment with two axes, `entry` and `scenario`."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import msgspec

from roamcast.errors import InputError, ScenarioError
from roamcast.explain import converted
from roamcast.lab.sweep.experiment import Experiment, experiment_from
from roamcast.plugins import ModuleNames, load_modules
from roamcast.registry import Plugin
from roamcast.scenario import read_tables
from roamcast.scenario.model import Chosen, StrategyChoice, UnderlayChoice
from roamcast.strategy import STRATEGIES

FOLDER = Path(__file__).parent
SCENARIOS = "scenarios"
ENTRIES = "entries.toml"
SEEDS = {"quick": range(1, 4), "full": range(1, 11)}
"""By profile. The scenarios were tuned on seeds above 100."""
PROFILES = tuple(SEEDS)


class Entry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[[entry]]`: a strategy with its options, under a name of its own."""

    name: Annotated[str, msgspec.Meta(pattern=r"^[a-z0-9][a-z0-9-]*$", max_length=40)]
    about: Annotated[str, msgspec.Meta(max_length=200)] = ""
    strategy: StrategyChoice  # as in a scenario file, as the next two
    underlay: UnderlayChoice | None = None
    brokers: Chosen | None = None

    def settings(self) -> dict[str, Any]:
        """What it sets in every scenario."""
        tables = {"strategy": self.strategy, "underlay": self.underlay, "roles.brokers": self.brokers}
        return {key: msgspec.to_builtins(value) for key, value in tables.items() if value is not None}


class EntryFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`entries.toml`, and every file that `--enter` names."""

    entry: Annotated[tuple[Entry, ...], msgspec.Meta(min_length=1, max_length=100)]
    modules: ModuleNames = ()  # plug-ins, beside the file or installed


@dataclass(frozen=True)
class Contest:
    entries: list[Entry]
    scenarios: dict[str, str]  # name → the text of its file
    experiment: Experiment


def contest(profile: str, enter: Sequence[Path] = ()) -> Contest:
    """The league of a profile, with what other files enter. Every combination is checked here."""
    if profile not in SEEDS:
        raise InputError("profile", f"is {profile!r}; allowed: {', '.join(PROFILES)}")
    entries: list[Entry] = []
    plugins: list[Plugin] = []
    for path in (FOLDER / ENTRIES, *enter):
        for entry in _entered(path, plugins):
            if any(entry.name == other.name for other in entries):
                raise ScenarioError(
                    f"{path}: entry", f"{entry.name!r} takes part already; allowed: another name"
                )
            entries.append(entry)
    files = sorted((FOLDER / SCENARIOS).glob("*.toml"))
    experiment = experiment_from(
        "league",
        {},
        {},
        base=FOLDER / SCENARIOS,
        seeds=list(SEEDS[profile]),
        source="league",
        plugins=plugins,
        variants={
            "entry": {entry.name: entry.settings() for entry in entries},
            "scenario": {path.stem: _without_strategy(read_tables(path)) for path in files},
        },
    )
    return Contest(entries, {path.stem: path.read_text(encoding="utf-8") for path in files}, experiment)


def _entered(path: Path, plugins: list[Plugin]) -> Sequence[Entry]:
    try:
        file: EntryFile = converted(read_tables(path), EntryFile)
        plugins += load_modules(file.modules, path.parent, "modules")
        for index, entry in enumerate(file.entry):
            STRATEGIES.check(f"entry[{index}].strategy", entry.strategy.name, entry.strategy.options)
    except ScenarioError as error:
        raise ScenarioError(f"{path}: {error.where}", error.problem) from None
    return file.entry


def _without_strategy(tables: dict[str, Any]) -> dict[str, Any]:
    """A scenario's file names a strategy, so that it can be run by itself; here the entries do."""
    return {name: table for name, table in tables.items() if name != "strategy"}

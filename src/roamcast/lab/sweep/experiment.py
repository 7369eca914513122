"""Experiment files, version 1: a scenario, the axes along which it varies, and how often each cell is run.

A cell is one combination of axis values; a run is a cell with a seed. Everything that can be wrong with a
combination is found here, before anything runs. `docs/study/lab.md` is the users' page.
"""

import hashlib
import itertools
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import msgspec
import numpy as np

import roamcast
from roamcast.errors import FileError, InputError, ScenarioError, errors_in
from roamcast.explain import converted, shown
from roamcast.lab.run.metrics import METRICS
from roamcast.lab.studies.study import Study, study_named
from roamcast.plugins import NOTHING_SHIPPED, ModuleNames, Shipment, load_modules, modules_in, shipment
from roamcast.registry import Plugin
from roamcast.scenario import Scenario, read_tables, scenario_from, with_settings
from roamcast.scenario.model import RecordedTrace, parts_of

if TYPE_CHECKING:
    from roamcast.lab.run.runs import RunResult

RUNS_MAX = 100_000  # chosen by us: a mistyped range is refused before it fills a disk
CELLS_CHECKED_MAX = 1_000  # before the first run, at 3 ms each; chosen by us
SEED_KEY = "scenario.seed"
SEED_MAX = 2**63 - 1
RANGE_KEYS = frozenset({"from", "to", "step", "count"})

Seed = Annotated[int, msgspec.Meta(ge=0, le=SEED_MAX)]
Variants: TypeAlias = Mapping[str, Mapping[str, Mapping[str, Any]]]
"""Axes whose values are names: axis → name → the settings that the name stands for."""


@dataclass(frozen=True)
class RunPlan:
    """One run of an experiment."""

    run: str  # its name everywhere: `<cell>-<seed>-<digest of the scenario>`
    cell: int
    axes: dict[str, Any]  # the axis values of its cell
    seed: int
    settings: list[tuple[str, Any]]  # what to set in the scenario's tables


@dataclass(frozen=True)
class Experiment:
    """An experiment whose every combination was checked: `load_experiment` and `experiment_from` make it."""

    name: str
    tables: dict[str, Any]  # the scenario, as its file has it
    base: Path  # the folder to which file names in the scenario are relative
    axes: dict[str, tuple[Any, ...]]
    seeds: tuple[int, ...]
    files: dict[str, str]  # what the runs read, plug-ins beside the files too: name → SHA-256
    plugins: Shipment = NOTHING_SHIPPED  # what the runs need from outside the tree
    variants: Variants = field(default_factory=dict)

    def runs(self) -> list[RunPlan]:
        """Every run, cell by cell, in the order of the file; the last axis varies fastest."""
        return [
            self._plan(cell, axes, seed) for cell, axes in enumerate(cells(self.axes)) for seed in self.seeds
        ]

    def run(self, number: int) -> RunPlan:
        """One of `runs`, by its place: what a worker needs, without making them all."""
        cell, place = divmod(number, len(self.seeds))
        places = np.unravel_index(cell, [len(values) for values in self.axes.values()])
        axes = {key: values[at] for (key, values), at in zip(self.axes.items(), places, strict=True)}
        return self._plan(cell, axes, self.seeds[place])

    def scenario(self, plan: RunPlan) -> Scenario:
        """The scenario of one run."""
        return scenario_from(self.tables, self.base, plan.settings)

    def result(self, plan: RunPlan, base: Path) -> "RunResult":
        """Do one run, where its plug-ins are loaded and its files lie in `base`."""
        from roamcast.lab.run.runs import simulate  # here: the driver of a sweep needs none of the simulator

        return simulate(scenario_from(self.tables, base, plan.settings, loads_modules=False))

    def metrics(self) -> tuple[str, ...]:
        """The metrics that every run is measured by."""
        return tuple(METRICS)

    def redefined(self) -> Collection[str]:
        """The names in `METRICS` that mean something else here."""
        return ()

    def asked(self, axes: Mapping[str, Any]) -> dict[str, str]:
        """What is known of the runs of a cell before they ended."""
        chosen = with_settings(self.tables, settings_of(axes, self.variants))
        return {"name": chosen["scenario"]["name"], "strategy": chosen["strategy"]["name"]}

    def weight(self, axes: Mapping[str, Any]) -> float:
        """About how long a run of a cell takes: nodes times simulated seconds."""
        tables = with_settings(self.tables, settings_of(axes, self.variants))
        nodes = float(tables.get("world", {}).get("nodes") or 1)
        return nodes * float(tables["scenario"].get("duration", 1.0))

    def to_dict(self) -> dict[str, Any]:
        """Everything that determines the results, as plain values: equal values mean the same experiment."""
        made = {
            "experiment": self.name,
            "roamcast": roamcast.__version__,
            "scenario": self.tables,
            "axes": {key: list(values) for key, values in self.axes.items()},
            "seeds": list(self.seeds),
            "files": self.files,
        }
        return made | ({"variants": self.variants} if self.variants else {})

    @property
    def fingerprint(self) -> str:
        """The same with other seeds: an experiment may get more of them."""
        return hashlib.sha256(_canonical(self.to_dict() | {"seeds": []})).hexdigest()

    def _plan(self, cell: int, axes: dict[str, Any], seed: int) -> RunPlan:
        chosen = settings_of(axes, self.variants)
        named = [chosen] if self.variants else []
        digest = hashlib.sha256(self._base_text + _canonical([axes, seed, *named])).hexdigest()
        return RunPlan(f"{cell:04d}-{seed}-{digest[:8]}", cell, axes, seed, [*chosen, (SEED_KEY, seed)])

    @cached_property
    def _base_text(self) -> bytes:
        return _canonical([self.tables, self.files])


@dataclass(frozen=True)
class StudyExperiment(Experiment):
    """Runs of a study (`lab/studies/`): `tables` are its parameters, as are the axes."""

    study: str = ""

    def study_of(self, axes: Mapping[str, Any]) -> Study:
        return study_named(self.study, self.name).of({**self.tables, **axes}, self.name)

    def result(self, plan: RunPlan, base: Path) -> "RunResult":
        return self.study_of(plan.axes).run(plan.seed)

    def metrics(self) -> tuple[str, ...]:
        return study_named(self.study, self.name).figures()

    def redefined(self) -> Collection[str]:
        return study_named(self.study, self.name)().metrics(1).metrics.keys()

    def asked(self, axes: Mapping[str, Any]) -> dict[str, str]:
        return {}

    def weight(self, axes: Mapping[str, Any]) -> float:
        return self.study_of(axes).weight()

    def to_dict(self) -> dict[str, Any]:
        return super().to_dict() | {"study": self.study}


def cells(axes: Mapping[str, Sequence[Any]]) -> Iterator[dict[str, Any]]:
    """Every combination of axis values."""
    for values in itertools.product(*axes.values()):
        yield dict(zip(axes, values, strict=True))


def settings_of(axes: Mapping[str, Any], variants: Variants) -> list[tuple[str, Any]]:
    """What a cell sets in the scenario's tables: the values of its axes, and what named values stand for."""
    chosen: list[tuple[str, Any]] = []
    for key, value in axes.items():
        chosen += variants[key][value].items() if key in variants else [(key, value)]
    return chosen


def load_experiment(path: Path | str) -> Experiment:
    """The experiment in a file; the scenario's path is relative to that file."""
    source = Path(path)
    with errors_in(str(path)):
        head = converted(read_tables(source), _File)
        plugins = load_modules(head.experiment.modules, source.parent, "experiment.modules")
    scenario = source.parent / head.experiment.scenario
    return experiment_from(
        head.experiment.name,
        read_tables(scenario),
        head.axes,
        base=scenario.parent,
        replications=head.experiment.replications,
        seeds=head.experiment.seeds,
        source=str(path),
        scenario_source=str(scenario),
        plugins=plugins,
        variants=head.variants,
    )


def experiment_from(
    name: str,
    tables: Mapping[str, Any],
    axes: Mapping[str, Any],
    base: Path = Path(),
    replications: int | None = None,
    seeds: Sequence[int] | None = None,
    source: str = "",
    scenario_source: str = "",
    plugins: Sequence[Plugin] = (),
    variants: Variants | None = None,
    study: str | None = None,
) -> Experiment:
    """An experiment from values in memory. With a `source`, errors about it begin with that. `plugins`: what
    the experiment loaded itself; those that its scenarios name are found here. With a `study`, `tables` are
    its parameters."""
    with errors_in(source):
        named = _flat_variants(variants or {})
        values: dict[str, tuple[Any, ...]] = {axis: tuple(names) for axis, names in named.items()}
        for key, value in _flat(axes):
            if key in values:
                raise ScenarioError(f"axes.{key}", "is given twice; allowed: each axis once")
            values[key] = _axis_values(f"axes.{key}", value)
        if not values:
            raise ScenarioError("axes", 'has no axis; allowed: at least one, e.g. "world.nodes" = [50, 100]')
        chosen_seeds = _seeds(tables, values, replications, seeds)
        values.pop(SEED_KEY, None)
        total = len(chosen_seeds) * prod(map(len, values.values()))
        if total > RUNS_MAX:
            raise ScenarioError("axes", f"make {total:,} runs; allowed: at most {RUNS_MAX:,}")
    if study is not None:
        for combination in _to_check(values):
            study_named(study, source).of({**tables, **combination}, source)
        return StudyExperiment(name, dict(tables), Path(), values, chosen_seeds, {}, study=study)
    files, parts = _check_cells(tables, base, values, named, chosen_seeds[0], source, scenario_source)
    own = load_modules(modules_in(tables, "scenario"), base, "scenario.modules")
    shipped = shipment([*plugins, *own, *parts])
    return Experiment(
        name, dict(tables), base.absolute(), values, chosen_seeds, files | shipped.digests, shipped, named
    )


class _Head(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """`[experiment]`"""

    name: Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
    scenario: Annotated[str, msgspec.Meta(min_length=1)]  # a file name, relative to the experiment file
    replications: Annotated[int, msgspec.Meta(ge=1, le=RUNS_MAX)] | None = None
    seeds: Annotated[tuple[Seed, ...], msgspec.Meta(min_length=1)] | None = None
    modules: ModuleNames = ()  # plug-ins, beside this file or installed


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A whole experiment file."""

    experiment: _Head
    axes: dict[str, Any] = {}
    variants: dict[str, dict[str, dict[str, Any]]] = {}


# Axes.


def _flat_variants(variants: Variants) -> Variants:
    """With dotted keys; a variant without settings is the scenario as its file has it."""
    made: dict[str, dict[str, dict[str, Any]]] = {}
    for axis, named in variants.items():
        if not named:
            raise ScenarioError(f"variants.{axis}", "is empty; allowed: at least one variant")
        made[axis] = {name: dict(_dotted(settings)) for name, settings in named.items()}
        for name, settings in made[axis].items():
            if SEED_KEY in settings:
                raise ScenarioError(
                    f"variants.{axis}.{name}", f"sets {SEED_KEY}; allowed: `experiment.seeds` sets it for all"
                )
    return made


def _dotted(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in settings.items():
        if isinstance(value, Mapping) and value:
            yield from _dotted(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _flat(axes: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted keys, whether the file quotes them or lets TOML make tables of them."""
    for key, value in axes.items():
        dotted = f"{prefix}{key}"
        if isinstance(value, Mapping) and "from" not in value and "to" not in value:
            if not value:
                raise ScenarioError(f"axes.{dotted}", "is empty; allowed: a list or a range")
            yield from _flat(value, f"{dotted}.")
        else:
            yield dotted, value


def _axis_values(where: str, value: Any) -> tuple[Any, ...]:
    if isinstance(value, Mapping):
        return _range_values(where, value)
    if not isinstance(value, list | tuple):
        raise ScenarioError(
            where, f"is {shown(value)}; allowed: a list, {{from, to, step}} or {{from, to, count}}"
        )
    if not value:
        raise ScenarioError(where, "is an empty list; allowed: at least one value")
    seen: dict[bytes, int] = {}
    for index, item in enumerate(value):
        if seen.setdefault(_canonical(item), index) != index:
            raise ScenarioError(f"{where}[{index}]", f"is {shown(item)} again; allowed: each value once")
    return tuple(value)


def _range_values(where: str, table: Mapping[str, Any]) -> tuple[int | float, ...]:
    """The numbers of a range, both ends included. Computed with fractions, so that 0.1 + 0.2 is 0.3."""
    shape = "allowed: {from, to, step} or {from, to, count}, all numbers"
    if not {"from", "to"} <= table.keys() <= RANGE_KEYS or ("step" in table) == ("count" in table):
        raise ScenarioError(where, f"has the keys {', '.join(table)}; {shape}")
    exact = {}
    for key, number in table.items():
        if isinstance(number, bool) or not isinstance(number, int | float):
            raise ScenarioError(f"{where}.{key}", f"is {shown(number)}; {shape}")
        try:
            exact[key] = Fraction(str(number))
        except ValueError:  # nan, inf
            raise ScenarioError(f"{where}.{key}", f"is {number}; {shape}") from None
    first, last = exact["from"], exact["to"]
    if "step" in exact:
        step = exact["step"]
        if step == 0 or (last - first) / step < 0:
            raise ScenarioError(f"{where}.step", f"is {table['step']}; allowed: what leads to `to`")
        count = (last - first) // step + 1
    else:
        if exact["count"].denominator != 1 or exact["count"] < 1 or (exact["count"] == 1) != (first == last):
            raise ScenarioError(
                f"{where}.count",
                f"is {table['count']}; allowed: a whole number, at least 2 (1 if from = to)",
            )
        count = int(exact["count"])
        step = (last - first) / max(count - 1, 1)
    if count > RUNS_MAX:
        raise ScenarioError(where, f"has {count:,} values; allowed: at most {RUNS_MAX:,}")
    numbers = [first + index * step for index in range(count)]
    whole = all(isinstance(table[key], int) for key in table) and all(n.denominator == 1 for n in numbers)
    return tuple(int(n) if whole else float(n) for n in numbers)


def _seeds(
    tables: Mapping[str, Any],
    axes: Mapping[str, tuple[Any, ...]],
    replications: int | None,
    seeds: Sequence[int] | None,
) -> tuple[int, ...]:
    """The seeds of every cell: a list (also as an axis), or counted up from the scenario's own."""
    given = {
        "experiment.replications": replications,
        "experiment.seeds": seeds,
        f"axes.{SEED_KEY}": axes.get(SEED_KEY),
    }
    named = [key for key, value in given.items() if value is not None]
    if len(named) > 1:
        raise ScenarioError(named[0], f"stands beside {named[1]}; allowed: one of them")
    listed = axes.get(SEED_KEY, seeds)
    if listed is None:
        section = tables.get("scenario")
        first = section.get("seed", 1) if isinstance(section, Mapping) else 1
        if isinstance(first, bool) or not isinstance(first, int):
            first = 1  # the scenario's own check, which comes next, will complain
        listed = range(first, first + (replications or 1))
    for seed in listed:
        if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed <= SEED_MAX:
            raise ScenarioError(named[0] if named else SEED_KEY, f"has {shown(seed)}; allowed: 0 to 2^63 - 1")
    if len(set(listed)) != len(listed):
        raise ScenarioError(named[0], "has a seed twice; allowed: each once")
    return tuple(listed)


# Checks of whole scenarios.


def _check_cells(
    tables: Mapping[str, Any],
    base: Path,
    axes: Mapping[str, tuple[Any, ...]],
    variants: Variants,
    seed: int,
    source: str,
    scenario_source: str,
) -> tuple[dict[str, str], list[Plugin]]:
    """Check that the combinations are valid scenarios; raises the first error. Gives the files that the
    scenarios read and the plug-ins that they name."""
    files: dict[str, str] = {}
    plugins: dict[Plugin, None] = {}
    for combination in _to_check(axes):
        try:
            chosen = [*settings_of(combination, variants), (SEED_KEY, seed)]
            scenario = scenario_from(tables, base, chosen)
        except InputError as error:
            _check_alone(tables, base, error, scenario_source)
            values = ", ".join(f"{key} = {shown(value)}" for key, value in combination.items())
            where = f"{source}: {error.where}" if source else error.where
            raise ScenarioError(where, f"{error.problem} (with {values})") from None
        for name in _files_of(scenario):
            if name not in files:
                files[name] = _digest(base / name)
        plugins |= dict.fromkeys(_plugins_of(scenario))
    return dict(sorted(files.items())), list(plugins)


def _to_check(axes: Mapping[str, tuple[Any, ...]]) -> Iterator[dict[str, Any]]:
    """The combinations that are checked before a sweep begins: all, if they are few. If they are many, each
    value once beside the first values of the other axes (of numbers, which name no files, only some), and a
    sample of all combinations. An invalid one that was not checked fails in its own run."""
    count = prod(map(len, axes.values()))
    if count <= CELLS_CHECKED_MAX:
        yield from cells(axes)
        return
    first = {key: values[0] for key, values in axes.items()}
    for key, values in axes.items():
        are_numbers = all(isinstance(value, int | float) for value in values)
        for value in values[:: _step(len(values))] if are_numbers else values:
            yield first | {key: value}
    yield {key: values[-1] for key, values in axes.items()}
    yield from itertools.islice(cells(axes), 0, None, _step(count))


def _step(count: int) -> int:
    return -(-count // CELLS_CHECKED_MAX)


def _check_alone(tables: Mapping[str, Any], base: Path, error: InputError, scenario_source: str) -> None:
    """If the scenario has the same error without any axis, the error is reported for the scenario file."""
    try:
        scenario_from(tables, base, source=scenario_source)
    except InputError as alone:
        if alone.problem == error.problem:
            raise alone from None


def _files_of(scenario: Scenario) -> list[str]:
    names = []
    if scenario.world.contacts is not None:
        names.append(scenario.world.contacts)
    if isinstance(scenario.world.mobility, RecordedTrace):
        names.append(scenario.world.mobility.file)
    if scenario.workload.schema is not None:
        names.append(scenario.workload.schema)
    return names


def _plugins_of(scenario: Scenario) -> Iterator[Plugin]:
    for key, registry, name in parts_of(scenario):
        plugin = registry.plugin(name)
        if plugin is None:
            continue
        if plugin.module == "__main__":
            raise ScenarioError(
                key, f"is {name!r}, which no worker can import; allowed: a module that `modules` names"
            )
        yield plugin


def _digest(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise FileError(str(path), f"cannot be read: {error.strerror}") from None


def _canonical(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), default=str).encode()

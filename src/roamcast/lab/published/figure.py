"""One published table or figure as a file: what to run, what was published, what counts as agreement.

The format is in `docs/study/reproduce.md`. Everything that can be wrong with a file is found when it is read,
for both profiles: cells that a profile does not have, formulas, rules that lack what they need.
"""

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

import msgspec

from roamcast.errors import InputError, ScenarioError, errors_in
from roamcast.explain import converted, shown, unknown
from roamcast.lab.published.formula import metrics_in
from roamcast.lab.sweep.experiment import Experiment, cells, experiment_from
from roamcast.lab.sweep.results import value_label
from roamcast.scenario import read_tables
from roamcast.scenario.load import with_settings

FOLDER = Path(__file__).parent
PROFILES = ("quick", "full")

Text: TypeAlias = Annotated[str, msgspec.Meta(min_length=1)]
Cell: TypeAlias = dict[str, Any]


class Rule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Exactly one rule is set; `along` belongs to `trend` and `linear`."""

    within: Annotated[float, msgspec.Meta(ge=0)] | None = None  # of the published value, in its unit
    within_relative: Annotated[float, msgspec.Meta(ge=0)] | None = None  # as a share of the published value
    at_most: float | None = None
    at_least: float | None = None
    between: tuple[float, float] | None = None  # both ends included
    order: Annotated[tuple[Cell, ...], msgspec.Meta(min_length=2)] | None = None  # smallest first
    trend: Literal["increasing", "decreasing"] | None = None
    linear: Annotated[float, msgspec.Meta(ge=0, le=1)] | None = None  # the least R² of a straight line
    along: str | None = None  # an axis
    # The rule must hold at both ends of the 95% interval: of `order`, `at_most`, `at_least`, `between`.
    sure: bool = False

    @property
    def kind(self) -> str:
        return next(name for name in RULES if getattr(self, name) is not None)

    def __str__(self) -> str:
        order = " < ".join(", ".join(map(value_label, cell.values())) for cell in self.order or ())
        text = RULES[self.kind].format(**msgspec.structs.asdict(self) | {"order": order})
        return f"{text}, beyond chance" if self.sure else text


RULES = {
    "within": "within ± {within:g}",
    "within_relative": "within ± {within_relative:.4g} of the published value",
    "at_most": "at most {at_most:g}",
    "at_least": "at least {at_least:g}",
    "between": "{between[0]:g} to {between[1]:g}",
    "order": "{order}",
    "trend": "{trend} along {along}",
    "linear": "linear along {along}: R² of at least {linear:g}",
}
"""The rules, and how a row of a reproduction words them."""


class Quantity(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[[quantity]]`"""

    name: Text
    metric: Text  # or arithmetic over metrics of one run
    rule: Rule
    at: Cell = {}  # axis values; an axis with one value need not be named
    # Divide, seed by seed, by the value in the cell that differs in these axes. Where a rule looks at
    # several cells, each is divided by its own reference cell.
    relative_to: Cell | None = None
    published: float | None = None
    unit: str = ""
    note: str = ""  # why ours differs, or what to know
    only: Literal["quick", "full"] | None = None  # left out in the other profile


class Profile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[profile.quick]`, `[profile.full]`: how much of it is run."""

    replications: Annotated[int, msgspec.Meta(ge=1)]
    axes: dict[str, Any] = {}  # instead of the axes of the same names in `[axes]`
    set: dict[str, Any] = {}  # scenario keys, e.g. a shorter duration


class Profiles(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    quick: Profile
    full: Profile


class File(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A whole file."""

    title: Text
    source: Text  # the work and the section
    note: str = ""
    scenario: dict[str, Any] = {}  # the tables of a scenario file; or …
    study: Text | None = None  # … a study (`lab/studies/`), with
    parameters: dict[str, Any] = {}  # its parameters beside the axes, and
    first_seed: Annotated[int, msgspec.Meta(ge=0, le=1_000_000)] = 1  # its seeds; a scenario has its own
    axes: dict[str, Any] = {}
    variants: dict[str, dict[str, dict[str, Any]]] = {}  # of a scenario: named values, as in an experiment
    profile: Profiles
    quantity: Annotated[tuple[Quantity, ...], msgspec.Meta(min_length=1)]


@dataclass(frozen=True)
class PublishedFigure:
    """A file that was read and checked."""

    paper: str
    figure: str
    file: File
    source: str  # where it was read from, for messages

    @property
    def name(self) -> str:
        return f"{self.paper}/{self.figure}"

    def experiment(self, profile: str) -> Experiment:
        """What the profile runs. Its name says which figure and profile it is."""
        return self._experiments[profile]

    def quantities(self, profile: str) -> list[Quantity]:
        return [quantity for quantity in self.file.quantity if quantity.only in (None, profile)]

    @cached_property
    def _experiments(self) -> dict[str, Experiment]:
        return {profile: self._made(profile, getattr(self.file.profile, profile)) for profile in PROFILES}

    def _made(self, name: str, profile: Profile) -> Experiment:
        """What it runs, checked: every cell of it."""
        tables, seeds = with_settings(self.file.scenario, profile.set.items()), None
        if self.file.study is not None:
            first = self.file.first_seed
            tables, seeds = self.file.parameters | profile.set, range(first, first + profile.replications)
        return experiment_from(
            f"{self.name} ({name})",
            tables,
            self.file.axes | profile.axes,
            replications=profile.replications if seeds is None else None,
            seeds=seeds,
            source=f"{self.source}: profile.{name}",
            scenario_source=f"{self.source}: scenario",
            variants=self.file.variants,
            study=self.file.study,
        )


def known(folder: Path = FOLDER) -> list[str]:
    """Every `paper/figure` there is, in order."""
    return sorted(_files(folder))


def selected(selection: str | None, folder: Path = FOLDER) -> list[PublishedFigure]:
    """The figures of a paper, one figure (`paper/figure`), or all of them."""
    files = _files(folder)
    names = sorted(files)
    if selection is not None:
        wanted = selection.strip("/")
        papers = sorted({name.partition("/")[0] for name in names})
        chosen = [name for name in names if name == wanted or name.partition("/")[0] == wanted]
        if not chosen:
            raise InputError(selection, unknown(wanted, [*papers, *names], "is no published figure"))
        names = chosen
    return [load_figure(files[name], name.partition("/")[2]) for name in names]


def load_figure(path: Path, name: str | None = None) -> PublishedFigure:
    """Read and check one figure of a file; without a name the only one."""
    name = path.stem if name is None else name
    with errors_in(str(path)):
        file: File = converted(_tables_of(read_tables(path), name), File)
    if (file.study is None) == (not file.scenario):
        raise ScenarioError(f"{path}: scenario", "stands beside `study`, or both are missing; allowed: one")
    if file.study is not None and file.variants:
        raise ScenarioError(f"{path}: variants", "stands beside `study`, which has axes only")
    if file.scenario and file.first_seed != 1:
        raise ScenarioError(f"{path}: first_seed", "is a study's; allowed here: `scenario.scenario.seed`")
    figure = PublishedFigure(path.parent.name, name, file, str(path))
    for profile in PROFILES:
        experiment = figure.experiment(profile)
        axes, figures = experiment.axes, experiment.metrics()
        for index, quantity in enumerate(file.quantity):
            if quantity.only in (None, profile):
                metrics_in(quantity.metric, f"{path}: quantity[{index}].metric", figures)
                _check(quantity, axes, f"{path}: quantity[{index}]", profile)
    return figure


# Several figures in one file, several quantities in one entry.


class _Entry(msgspec.Struct, frozen=True, kw_only=True):
    """What a `[[quantity]]` may say beside the keys of `Quantity`."""

    each: dict[str, Annotated[int, msgspec.Meta(ge=1)]] = {}
    figures: tuple[str, ...] = ()  # those that have it; none: all
    at: Cell = {}
    rule: dict[str, Any] = {}


class _Series(msgspec.Struct, frozen=True, kw_only=True):
    """What a file says beside the keys of `File`, which are checked later."""

    figures: dict[str, dict[str, Any]] = {}  # by name: dotted keys of the file that this figure has otherwise
    labels: dict[str, list[str]] = {}  # by axis: what its values are called in the names of quantities
    axes: dict[str, Any] = {}
    profile: dict[str, dict[str, Any]] = {}
    quantity: tuple[_Entry, ...] = ()


def _files(folder: Path) -> dict[str, Path]:
    """By figure: the file that it is in."""
    found = {}
    for path in folder.glob("*/*.toml"):
        for figure in read_tables(path).get("figures", {path.stem: {}}):
            found[f"{path.parent.name}/{figure}"] = path
    return found


def _tables_of(tables: Mapping[str, Any], figure: str) -> dict[str, Any]:
    """The tables of one figure of a file, as if it had a file of its own."""
    try:
        names = msgspec.convert(tables, _Series).figures
        made = with_settings(tables, names.get(figure, {}).items())
        series = msgspec.convert(made, _Series)
    except msgspec.ValidationError as error:
        raise ScenarioError("file", str(error)) from None
    quantities = made.get("quantity", [])
    if names:
        here = list(names).index(figure)
        own = [entry for entry in quantities if figure in entry.get("figures", names)]
        quantities = [_published(entry, here, "figures") for entry in own]
    plain = {key: value for key, value in made.items() if key not in ("figures", "labels")}
    return plain | {"quantity": list(_spelled_out(quantities, series))}


def _spelled_out(entries: Iterable[dict[str, Any]], series: _Series) -> Iterator[dict[str, Any]]:
    """An entry with `each = { axis = 3 }` stands for three quantities: one for each of the first three values
    of the axis. Neighbours with the same first axis take turns."""
    for axis, group in itertools.groupby(entries, key=lambda entry: next(iter(entry.get("each", ())), None)):
        members = list(group)
        if axis is None:
            yield from map(_ruled, members)
            continue
        values = series.axes.get(axis)
        if not isinstance(values, list):
            raise ScenarioError(
                f"quantity.each.{axis}", unknown(axis, list(series.axes), "is no axis with a list")
            )
        count = max(entry["each"][axis] for entry in members)
        for index, value in enumerate(values[:count]):
            yield from _spelled_out([_at(entry, axis, index, value, series) for entry in members], series)


def _at(entry: Mapping[str, Any], axis: str, index: int, value: Any, series: _Series) -> dict[str, Any]:
    """The entry for one value of its first axis. A cell that only the full profile has is left to that."""
    label = series.labels[axis][index] if axis in series.labels else value_label(value)
    quick = series.profile.get("quick", {}).get("axes", {}).get(axis, [value])
    return _published(entry, index, axis) | {
        "name": entry.get("name", "").replace(f"{{{axis}}}", label),
        "at": {**entry.get("at", {}), axis: value},
        "each": {key: count for key, count in entry["each"].items() if key != axis},
        **({} if value in quick else {"only": "full"}),
    }


def _published(entry: Mapping[str, Any], index: int, axis: str) -> dict[str, Any]:
    """`published` may be a list, with a value for each figure, and for each value of an axis in `each`."""
    values = entry.get("published")
    if not isinstance(values, list):
        return dict(entry)
    if index >= len(values):
        raise ScenarioError(
            "quantity.published", f"has {len(values)} values; allowed: one for each of {axis}"
        )
    return {**entry, "published": values[index]}


def _ruled(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Whose rule may name the published value."""
    rule = {
        kind: entry.get("published") if bound == "published" else bound
        for kind, bound in entry.get("rule", {}).items()
    }
    return {key: value for key, value in entry.items() if key not in ("each", "figures")} | {"rule": rule}


def chosen_cells(axes: Mapping[str, Any], at: Cell) -> list[int]:
    """The numbers of the cells that have these axis values."""
    plain = {key: _plain(value) for key, value in at.items()}
    return [
        number
        for number, cell in enumerate(cells(axes))
        if all(_plain(cell[key]) == value for key, value in plain.items())
    ]


def _check(quantity: Quantity, axes: Mapping[str, tuple[Any, ...]], where: str, profile: str) -> None:
    rule = quantity.rule
    given = [name for name in RULES if getattr(rule, name) is not None]
    if len(given) != 1:
        has = " and ".join(given) or "none"
        raise ScenarioError(f"{where}.rule", f"has {has}; allowed: exactly one of {', '.join(RULES)}")
    if (given[0] in ("trend", "linear")) != (rule.along is not None):
        raise ScenarioError(f"{where}.rule", "must have `along` together with `trend` or `linear`")
    if given[0].startswith("within") and quantity.published is None:
        raise ScenarioError(f"{where}.published", f"is missing; the rule `{given[0]}` needs it")
    relative = quantity.relative_to or {}
    if rule.order is not None:
        for place, cell in enumerate(rule.order):
            _check_cell(quantity.at | cell, axes, f"{where}.rule.order[{place}]", profile)
            _check_cell(quantity.at | cell | relative, axes, f"{where}.relative_to", profile)
    elif rule.along is not None:
        if len(axes.get(rule.along, ())) < 2:
            several = [key for key, values in axes.items() if len(values) > 1]
            raise ScenarioError(
                f"{where}.rule.along", unknown(rule.along, several, f"is {shown(rule.along)}, not to follow")
            )
        first = quantity.at | {rule.along: axes[rule.along][0]}
        _check_cell(first, axes, f"{where}.at", profile)
        _check_cell(first | relative, axes, f"{where}.relative_to", profile)
    else:
        _check_cell(quantity.at, axes, f"{where}.at", profile)
        _check_cell(quantity.at | relative, axes, f"{where}.relative_to", profile)


def _check_cell(at: Cell, axes: Mapping[str, tuple[Any, ...]], where: str, profile: str) -> None:
    for key, value in at.items():
        if key not in axes:
            raise ScenarioError(
                f"{where}.{key}", unknown(key, list(axes), f"is no axis of profile {profile}")
            )
        if _plain(value) not in [_plain(item) for item in axes[key]]:
            allowed = ", ".join(shown(item) for item in axes[key])
            raise ScenarioError(
                f"{where}.{key}", f"is {shown(value)}; allowed in profile {profile}: {allowed}"
            )
    count = len(chosen_cells(axes, at))
    if count != 1:
        open_axes = [key for key, values in axes.items() if key not in at and len(values) > 1]
        raise ScenarioError(where, f"means {count} cells; it must also name {', '.join(open_axes)}")


def _plain(value: Any) -> Any:
    """A value in comparable form: 750 and 750.0 are the same value, true and 1 are not."""
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return (type(value).__name__, value) if isinstance(value, bool) else value

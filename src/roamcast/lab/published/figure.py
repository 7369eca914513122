"""One published table or figure as a file: what to run, what was published, what counts as agreement.

The format is in `docs/study/reproduce.md`. Everything that can be wrong with a file is found when it is read,
for both profiles: cells that a profile does not have, formulas, rules that lack what they need.
"""

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
CLAIMS = ("order", "grows", "falls", "linear")

LINEAR = (
    0.95  # the least R² of what is called linear; table 6.14 of the acyclic overlay, "about linear": 0.97
)

# Half of our interval may be so much of a published number where it agrees by overlapping its range.
NARROW = 0.05

Text: TypeAlias = Annotated[str, msgspec.Meta(min_length=1)]
Cell: TypeAlias = dict[str, Any]
Range: TypeAlias = tuple[float, float]
Tolerance: TypeAlias = (
    Annotated[float, msgspec.Meta(ge=0)] | Annotated[str, msgspec.Meta(pattern=r"^[0-9]+(\.[0-9]+)?%$")]
)
"""In the unit of the published number, or as a share of it: `"2%"`."""


class Claim(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a work says in words: bounds, or one of the others."""

    at_least: float | None = None
    at_most: float | None = None
    # Smallest first; a bound beside it is that of each step.
    order: Annotated[tuple[Cell, ...], msgspec.Meta(min_length=2)] | None = None
    grows: str | None = None  # along this axis
    falls: str | None = None
    linear: str | None = None  # as a straight line along this axis

    @property
    def axis(self) -> str | None:
        return self.grows or self.falls or self.linear

    @property
    def agreed(self) -> "Range":
        if self.linear is not None:
            return LINEAR, math.inf
        if self.falls is not None:
            return -math.inf, -math.ulp(0.0)
        rises = self.order is not None or self.grows is not None
        least = math.ulp(0.0) if rises else -math.inf
        return (
            least if self.at_least is None else self.at_least,
            math.inf if self.at_most is None else self.at_most,
        )

    def __str__(self) -> str:
        if self.axis is not None:
            kind = "linear" if self.linear else "grows" if self.grows else "falls"
            return f"{kind} along {self.axis}"
        bounds = {"at least": self.at_least, "at most": self.at_most}
        text = " and ".join(f"{words} {bound:g}" for words, bound in bounds.items() if bound is not None)
        if self.order is None:
            return text
        order = " < ".join(", ".join(map(value_label, cell.values())) for cell in self.order)
        return f"{order}, each step {text}" if text else order


class Quantity(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[[quantity]]`: a published number, or a claim."""

    name: Text
    metric: Text  # or arithmetic over metrics of one run
    published: float | None = None
    tolerance: Tolerance | None = None  # how exactly `published` can be read; else the file's
    better: Literal["lower", "higher"] | None = None  # beyond the tolerance on this side is better
    calibrated: bool = False  # something was set by this number
    extreme: Literal["least", "greatest"] | None = (
        None  # of each three runs, which is how often works ran theirs
    )
    claim: Claim | None = None
    extra: bool = False  # ours: shown, never counted
    at: Cell = {}  # axis values; an axis with one value need not be named
    # Divide, seed by seed, by the value in the cell that differs in these axes. Where a claim looks at
    # several cells, each is divided by its own reference cell.
    relative_to: Cell | None = None
    unit: str = ""
    note: str = ""  # why ours differs, or what to know
    only: Literal["quick", "full"] | None = None  # left out in the other profile

    @property
    def kind(self) -> str:
        return "extra" if self.extra else "number" if self.claim is None else "claim"

    @property
    def error(self) -> float | None:
        """The tolerance in the unit of the published number."""
        if isinstance(self.tolerance, str):
            assert self.published is not None
            return abs(self.published) * float(self.tolerance.removesuffix("%")) / 100
        return self.tolerance

    @property
    def agreed(self) -> "Range":
        """The values that agree, both ends included."""
        if self.claim is not None:
            return self.claim.agreed
        assert self.published is not None and self.error is not None
        return self.published - self.error, self.published + self.error

    @property
    def narrow(self) -> float:
        """Half the width of an interval that agrees by overlapping the range; nothing is for a claim."""
        return 0.0 if self.published is None else abs(self.published) * NARROW

    @property
    def rule(self) -> str:
        if self.claim is not None:
            return str(self.claim)
        shown = self.tolerance if isinstance(self.tolerance, str) else f"{self.tolerance:g}"
        return f"{self.published:g} ± {shown}{f' or {self.better}' if self.better else ''}"

    def places(self, axes: Mapping[str, Sequence[Any]]) -> list[Cell]:
        """The cells that are looked at, without those that they are divided by."""
        if self.claim is None or (self.claim.order is None and self.claim.axis is None):
            return [self.at]
        if self.claim.order is not None:
            return [self.at | cell for cell in self.claim.order]
        assert self.claim.axis is not None
        return [self.at | {self.claim.axis: value} for value in axes.get(self.claim.axis, ())]

    def cells(self, axes: Mapping[str, Sequence[Any]]) -> set[int]:
        """The numbers of all cells that its verdict needs."""
        places = self.places(axes)
        if self.relative_to is not None:
            places += [place | self.relative_to for place in places]
        return {cell for place in places for cell in chosen_cells(axes, place)}


class Profile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[profile.quick]`, `[profile.full]`: how much of it is run."""

    replications: Annotated[int, msgspec.Meta(ge=1)]  # seeds that every cell begins with, and …
    replications_max: Annotated[int, msgspec.Meta(ge=1)] | None = (
        None  # … may have until a verdict is decided
    )
    run_seconds: Annotated[float, msgspec.Meta(gt=0)] = (
        5.0  # of processor time, in the mean: for the estimate
    )
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
    tolerance: Tolerance | None = None  # of the published numbers that have none of their own
    extra: bool = False  # nothing in the file is published
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

    def settings(self, profile: str) -> Profile:
        found: Profile = getattr(self.file.profile, profile)
        return found

    def quantities(self, profile: str) -> list[Quantity]:
        return [quantity for quantity in self.file.quantity if quantity.only in (None, profile)]

    @cached_property
    def _experiments(self) -> dict[str, Experiment]:
        return {profile: self._made(profile, self.settings(profile)) for profile in PROFILES}

    def _made(self, name: str, profile: Profile) -> Experiment:
        """The experiment of a profile, with every cell checked."""
        # No published number is about the limit: it is not computed, unless a figure asks for it.
        tables, seeds = with_settings(self.file.scenario, [("limit.events", 0), *profile.set.items()]), None
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


class _Series(msgspec.Struct, frozen=True, kw_only=True):
    """What a file says beside the keys of `File`, which are checked later."""

    figures: dict[str, dict[str, Any]] = {}  # by name: dotted keys of the file that this figure has otherwise
    labels: dict[str, list[str]] = {}  # by axis: what its values are called in the names of quantities
    axes: dict[str, Any] = {}
    profile: dict[str, dict[str, Any]] = {}
    quantity: tuple[_Entry, ...] = ()


def _files(folder: Path) -> dict[str, Path]:
    """The file of each figure, by the figure's name."""
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
    return plain | {"quantity": [_with_defaults(entry, made) for entry in _spelled_out(quantities, series)]}


def _with_defaults(entry: Mapping[str, Any], file: Mapping[str, Any]) -> dict[str, Any]:
    defaults = ("extra", "tolerance") if "published" in entry else ("extra",)
    own = {key: value for key, value in entry.items() if key not in ("each", "figures")}
    return {key: file[key] for key in defaults if key in file} | own


def _spelled_out(entries: Iterable[dict[str, Any]], series: _Series) -> Iterator[dict[str, Any]]:
    """An entry with `each = { axis = 3 }` stands for three quantities: one for each of the first three values
    of the axis. Neighbours with the same first axis take turns."""
    for axis, group in itertools.groupby(entries, key=lambda entry: next(iter(entry.get("each", ())), None)):
        members = list(group)
        if axis is None:
            yield from members
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


def chosen_cells(axes: Mapping[str, Any], at: Cell) -> list[int]:
    """The numbers of the cells that have these axis values."""
    plain = {key: _plain(value) for key, value in at.items()}
    return [
        number
        for number, cell in enumerate(cells(axes))
        if all(_plain(cell[key]) == value for key, value in plain.items())
    ]


def _check(quantity: Quantity, axes: Mapping[str, tuple[Any, ...]], where: str, profile: str) -> None:
    claim = quantity.claim
    if (claim is None) == (quantity.published is None):
        has = "neither" if claim is None else "both"
        raise ScenarioError(where, f"has {has}; allowed: one of `published` and `claim`")
    if claim is None and quantity.tolerance is None:
        raise ScenarioError(
            f"{where}.tolerance", 'is missing; allowed: as "2%", or in the unit of `published`'
        )
    if claim is not None:
        if any((quantity.tolerance is not None, quantity.better, quantity.calibrated, quantity.extreme)):
            keys = "`tolerance`, `better`, `calibrated` and `extreme`"
            raise ScenarioError(where, f"has a claim; {keys} are of a published number")
        bounds = claim.at_least is not None or claim.at_most is not None
        given = [key for key in CLAIMS if getattr(claim, key) is not None]
        if len(given) > 1 or (bool(given) == bounds and given != ["order"]):
            raise ScenarioError(
                f"{where}.claim", f"allowed: `at_least`, `at_most` or both, or one of {', '.join(CLAIMS)}"
            )
        if claim.axis is not None and len(axes.get(claim.axis, ())) < 2:
            several = [key for key, values in axes.items() if len(values) > 1]
            raise ScenarioError(
                f"{where}.claim", unknown(claim.axis, several, f"is along {shown(claim.axis)}, not to follow")
            )
    for place in quantity.places(axes):
        _check_cell(place, axes, f"{where}.at", profile)
        _check_cell(place | (quantity.relative_to or {}), axes, f"{where}.relative_to", profile)


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

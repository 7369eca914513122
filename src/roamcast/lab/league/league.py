"""`roamcast league`: run what is missing, judge, write the pages."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from string import Template
from typing import Annotated, Any, TypeVar

import msgspec

from roamcast.errors import InputError, ScenarioError, errors_in
from roamcast.explain import converted
from roamcast.lab.league.standing import (
    AIRTIME,
    COST,
    DELIVERY,
    INDICATORS,
    MARGIN,
    QUANTITIES,
    LeagueQuantity,
    LeagueStanding,
    standing,
)
from roamcast.lab.report import markdown_table, place, put_between
from roamcast.lab.report.markup import Markup, element, folded, page, section, table
from roamcast.lab.report.numbers import number, numbered, with_interval
from roamcast.lab.report.statistics import SIGNIFICANT
from roamcast.lab.storage import Storage
from roamcast.lab.sweep.experiment import Experiment, experiment_from
from roamcast.lab.sweep.results import Results, read_results
from roamcast.lab.sweep.sweep import Progress, sweep
from roamcast.plugins import ModuleNames, load_modules
from roamcast.registry import Plugin
from roamcast.scenario import read_tables
from roamcast.scenario.model import Chosen, StrategyChoice, UnderlayChoice
from roamcast.strategy import STRATEGIES

FOLDER = Path(__file__).parent
SCENARIOS = "scenarios"
ENTRIES = "entries.toml"
SEEDS = {"quick": 3, "full": 10}
"""How many, by profile."""
PROFILES = tuple(SEEDS)
Shown = TypeVar("Shown", str, Markup)


class LeagueEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[[entry]]`: a strategy with its options, under a name of its own."""

    name: Annotated[str, msgspec.Meta(pattern=r"^[a-z0-9][a-z0-9-]*$", max_length=40)]
    about: Annotated[str, msgspec.Meta(max_length=200)] = ""
    strategy: StrategyChoice  # as in a scenario file, as the next two
    underlay: UnderlayChoice | None = None
    brokers: Chosen | None = None

    def settings(self) -> dict[str, Any]:
        """What the entry sets in every scenario."""
        tables = {"strategy": self.strategy, "underlay": self.underlay, "roles.brokers": self.brokers}
        return {key: msgspec.to_builtins(value) for key, value in tables.items() if value is not None}


class LeagueFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`entries.toml`, and every file that `--enter` names."""

    entry: Annotated[tuple[LeagueEntry, ...], msgspec.Meta(min_length=1, max_length=100)]
    modules: ModuleNames = ()  # plug-ins, beside the file or installed


@dataclass(frozen=True)
class Contest:
    entries: list[LeagueEntry]
    scenarios: dict[str, str]  # name → the text of its file
    experiment: Experiment


def contest(profile: str, enter: Sequence[Path] = (), seed: int = 1) -> Contest:
    """The league of a profile, with what other files enter, from a first seed on. Every combination is
    checked here."""
    if profile not in SEEDS:
        raise InputError("profile", f"is {profile!r}; allowed: {', '.join(PROFILES)}")
    entries: list[LeagueEntry] = []
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
        seeds=list(range(seed, seed + SEEDS[profile])),
        source="league",
        plugins=plugins,
        variants={
            "entry": {entry.name: entry.settings() for entry in entries},
            "scenario": {path.stem: _without_strategy(read_tables(path)) for path in files},
        },
    )
    return Contest(entries, {path.stem: path.read_text(encoding="utf-8") for path in files}, experiment)


def _entered(path: Path, plugins: list[Plugin]) -> Sequence[LeagueEntry]:
    with errors_in(str(path)):
        file: LeagueFile = converted(read_tables(path), LeagueFile)
        plugins += load_modules(file.modules, path.parent, "modules")
        for index, entry in enumerate(file.entry):
            STRATEGIES.check(f"entry[{index}].strategy", entry.strategy.name, entry.strategy.options)
    return file.entry


def _without_strategy(tables: dict[str, Any]) -> dict[str, Any]:
    """A scenario's file names a strategy, so that it can be run by itself; here the entries do."""
    return {name: table for name, table in tables.items() if name != "strategy"}


HTML_NAME = "league.html"
MARKDOWN_NAME = "league.md"


@dataclass(frozen=True)
class LeagueTables:
    """What the command prints: two tables, each its heads and rows, and where the page is."""

    leaders: tuple[list[str], list[list[str]]]
    ranks: tuple[list[str], list[list[str]]]
    to_decide: str
    failed: int  # runs
    page: str  # its file


def league(
    profile: str,
    out: Storage | Path | str,
    enter: Sequence[Path] = (),
    page: Path | None = None,
    master: str | None = None,
    progress: Callable[[Progress], None] | None = None,
    anew: bool = False,
    seed: int = 1,
    verdict_page: Path | None = None,
) -> LeagueTables:
    """Run the league into `out`; runs that are there already are not repeated. Those of other code are
    refused, or with `anew` run again.

    `page`: a further place for the Markdown. `verdict_page`: put the verdict between its markers.
    """
    entered = contest(profile, enter, seed)
    ended = sweep(entered.experiment, out, master=master, resume=True, progress=progress, anew=anew)
    results = read_results(out)
    found = standing(results, entered.experiment.variants)
    text = markdown(entered, results, found)
    folder = Storage.open(out)
    place(text, folder, MARKDOWN_NAME)
    if page is not None:
        place(text, *Storage.of_file(page))
    if verdict_page is not None:
        put_between(verdict(results, found), verdict_page, "league")
    written = place(html(entered, results, found), folder, HTML_NAME)
    return LeagueTables(
        (LEADER_HEADS, leader_rows(found)),
        (RANK_HEADS, rank_rows(found)),
        to_decide(found),
        ended.failed,
        written,
    )


TEMPLATE = FOLDER / "page.md"
LEADER_HEADS = ["scenario", "delivery", "leading", "cheapest of them", "cost", "× limit"]
RANK_HEADS = ["entry", "delivery", "leads in", "cheapest in"]
INDICATOR_HEADS = ["scenario", *INDICATORS.values()]


def leader_rows(found: LeagueStanding) -> list[list[str]]:
    """A row per scenario, for the terminal and the pages."""
    rows = []
    for scenario in found.scenarios:
        best, cheapest = found.best(DELIVERY, scenario), found.best(COST, scenario)
        delivery = "–" if best is None else with_interval(found.score(DELIVERY, scenario, best).found)
        spent = [
            "–" if cheapest is None else number(found.score(quantity, scenario, cheapest).found.mean, 3)
            for quantity in (COST, AIRTIME)
        ]
        leaders = found.leaders(DELIVERY, scenario)
        leading = "all, none told apart" if leaders == found.entries else ", ".join(leaders) or "–"
        rows.append([scenario, delivery, leading, cheapest or "–", *spent])
    return rows


def verdict(results: Results, found: LeagueStanding) -> str:
    """For a first page: how near the best come to what physics allows."""
    best = [
        f"`{rank.entry}` serves {with_interval(rank.delivery)} and leads in {rank.leads} of"
        f" {len(found.scenarios)} scenarios"
        for rank in found.ranks[:2]
    ]
    airtimes = [
        mean
        for scenario in found.scenarios
        if (cheapest := found.best(COST, scenario)) is not None
        and (mean := found.score(AIRTIME, scenario, cheapest).found.mean) is not None
    ]
    spent = f"{number(median(airtimes), 2)} times in the median scenario" if airtimes else "not measured"
    return (
        f"Of the pairs that *any* protocol could have served in time, {', '.join(best)}. The airtime of the"
        f" cheapest leader, control included, over that of the fewest broadcasts that would do: {spent}.\n"
        f"{_what(results)}.\n"
    )


def to_decide(found: LeagueStanding) -> str:
    """How many seeds would tell the leaders apart, in one line."""
    undecided = [
        f"{scenario} {found.needed[scenario]}" for scenario in found.scenarios if scenario in found.needed
    ]
    if not undecided:
        return f"Of leaders of a scenario, none differ by {MARGIN:g} or more: more seeds decide nothing."
    return (
        f"Leaders that differ by {MARGIN:g} or more, but by no more than chance with {found.seeds} seeds,"
        f" would be told apart by about so many: {', '.join(undecided)}."
    )


def indicator_rows(found: LeagueStanding) -> list[list[str]]:
    return [
        [scenario, *(number(value, 3) for value in found.indicators[scenario])]
        for scenario in found.scenarios
    ]


def rank_rows(found: LeagueStanding) -> list[list[str]]:
    total = len(found.scenarios)
    return [
        [rank.entry, with_interval(rank.delivery), f"{rank.leads} of {total}", str(rank.cheapest)]
        for rank in found.ranks
    ]


def markdown(contest: Contest, results: Results, found: LeagueStanding) -> str:
    """The whole page; `page.md` has the words around the figures."""
    text = Template(TEMPLATE.read_text(encoding="utf-8")).substitute(
        what=_what(results),
        significant=SIGNIFICANT,
        leaders=markdown_table(
            LEADER_HEADS, [[_link(row[0], row[0]), *row[1:]] for row in leader_rows(found)]
        ),
        ranks=markdown_table(RANK_HEADS, rank_rows(found)),
        to_decide=to_decide(found),
        indicators=markdown_table(
            INDICATOR_HEADS, [[_link(row[0], row[0]), *row[1:]] for row in indicator_rows(found)]
        ),
        grids="\n\n".join(_grid(found, quantity) for quantity in QUANTITIES),
        entries=markdown_table(["entry", "what it is"], [[e.name, e.about] for e in contest.entries]),
        scenarios="\n\n".join(f"### {name}\n\n{about(text)}" for name, text in contest.scenarios.items()),
    )
    return text.rstrip() + "\n"


def html(contest: Contest, results: Results, found: LeagueStanding) -> str:
    """One file that needs nothing else."""
    return page(
        "The league · Roamcast",
        element("h1", "The league: who wins where, at what cost"),
        element("p", f"{_what(results)}.", class_="lead"),
        section(
            "Who leads where",
            table(
                LEADER_HEADS,
                [[element("a", row[0], href=f"#{row[0]}"), *row[1:]] for row in leader_rows(found)],
                texts=5,
            ),
            element("p", to_decide(found), class_="note"),
        ),
        section("Over all scenarios", table(RANK_HEADS, rank_rows(found), texts=1)),
        section("What the scenarios are like", table(INDICATOR_HEADS, indicator_rows(found), texts=1)),
        *(_html_grid(found, quantity) for quantity in QUANTITIES),
        section(
            "Who takes part",
            table(["entry", "what it is"], [(e.name, e.about) for e in contest.entries], texts=2),
        ),
        *(
            section(name, element("p", about(text)), folded("The file", element("pre", text)), anchor=name)
            for name, text in contest.scenarios.items()
        ),
        section("Failed runs", *_failed(results)),
    )


def about(scenario: str) -> str:
    """The comment at the head of a scenario's file."""
    return " ".join(line.removeprefix("#").strip() for line in _head(scenario))


def _head(text: str) -> Iterator[str]:
    for line in text.splitlines():
        if not line.startswith("#"):
            return
        yield line


def _what(results: Results) -> str:
    runs = f"{len(results.runs) - len(results.failed):,} runs"
    if results.failed:
        runs += f", {len(results.failed)} failed"
    return f"Roamcast {results.description.roamcast}, {runs}, seeds {numbered(results.description.seeds)}"


def _grid(found: LeagueStanding, quantity: LeagueQuantity) -> str:
    def linked(text: str, scenario: str, leads: bool = False) -> str:
        return _link(f"**{text}**" if leads else text, scenario)

    cells = markdown_table(["scenario", *found.entries], _grid_rows(found, quantity, linked))
    return f"### {_titled(quantity)}\n\n{quantity.meaning}.\n\n{cells}"


def _html_grid(found: LeagueStanding, quantity: LeagueQuantity) -> Markup:
    def linked(text: str, scenario: str, leads: bool = False) -> Markup:
        return element("a", element("b", text) if leads else text, href=f"#{scenario}")

    note = f"{quantity.meaning}. Bold: the best of the row, and what cannot be told apart from it."
    return section(
        _titled(quantity),
        element("p", note, class_="note"),
        table(["scenario", *found.entries], _grid_rows(found, quantity, linked), texts=1),
    )


def _grid_rows(
    found: LeagueStanding, quantity: LeagueQuantity, linked: Callable[..., Shown]
) -> list[list[Shown]]:
    """A row per scenario, a column per entry; `linked` makes a cell of text, scenario, whether it leads."""
    rows: list[list[Shown]] = []
    for scenario in found.scenarios:
        row = [linked(scenario, scenario)]
        for entry in found.entries:
            score = found.score(quantity, scenario, entry)
            row.append(linked(with_interval(score.found), scenario, score.leads))
        rows.append(row)
    return rows


def _titled(quantity: LeagueQuantity) -> str:
    name = quantity.name.capitalize()
    return f"{name} ({quantity.unit})" if quantity.unit else name


def _failed(results: Results) -> list[Markup]:
    if not results.failed:
        return [element("p", "None.")]
    rows = [(*results.cells[run.cell].values(), run.seed, run.error) for run in results.failed]
    return [table(["entry", "scenario", "seed", "error"], rows, texts=4)]


def _link(text: str, scenario: str) -> str:
    return f"[{text}](#{scenario})"

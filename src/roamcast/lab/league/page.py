"""The league's result: Markdown for the documentation, HTML for the folder, short tables for the terminal."""

from collections.abc import Iterator, Sequence
from string import Template

from roamcast.lab.league.contest import FOLDER, Contest
from roamcast.lab.league.standing import COST, DELIVERY, QUANTITIES, Quantity, Standing
from roamcast.lab.report.markup import Markup, element, folded, page, section, table
from roamcast.lab.report.numbers import number, numbered, with_interval
from roamcast.lab.report.statistics import SIGNIFICANT
from roamcast.lab.sweep.results import Results

TEMPLATE = FOLDER / "page.md"
LEADER_HEADS = ["scenario", "delivery", "leading", "cheapest of them", "cost"]
RANK_HEADS = ["entry", "delivery", "leads in", "cheapest in"]


def leader_rows(found: Standing) -> list[list[str]]:
    """A row per scenario, for the terminal and the pages."""
    rows = []
    for scenario in found.scenarios:
        best, cheapest = found.best(DELIVERY, scenario), found.best(COST, scenario)
        delivery = "–" if best is None else with_interval(found.score(DELIVERY, scenario, best).found)
        cost = "–" if cheapest is None else number(found.score(COST, scenario, cheapest).found.mean, 3)
        leaders = found.leaders(DELIVERY, scenario)
        leading = "all" if leaders == found.entries else ", ".join(leaders) or "–"
        rows.append([scenario, delivery, leading, cheapest or "–", cost])
    return rows


def rank_rows(found: Standing) -> list[list[str]]:
    total = len(found.scenarios)
    return [
        [rank.entry, with_interval(rank.delivery), f"{rank.leads} of {total}", str(rank.cheapest)]
        for rank in found.ranks
    ]


def markdown(contest: Contest, results: Results, found: Standing) -> str:
    """The whole page; `page.md` has the words around the figures."""
    text = Template(TEMPLATE.read_text(encoding="utf-8")).substitute(
        what=_what(results),
        significant=SIGNIFICANT,
        leaders=_table(LEADER_HEADS, [[_link(row[0], row[0]), *row[1:]] for row in leader_rows(found)]),
        ranks=_table(RANK_HEADS, rank_rows(found)),
        grids="\n\n".join(_grid(found, quantity) for quantity in QUANTITIES),
        entries=_table(["entry", "what it is"], [[e.name, e.about] for e in contest.entries]),
        scenarios="\n\n".join(f"### {name}\n\n{about(text)}" for name, text in contest.scenarios.items()),
    )
    return text.rstrip() + "\n"


def html(contest: Contest, results: Results, found: Standing) -> str:
    """One file that needs nothing else."""
    leaders = [[element("a", row[0], href=f"#{row[0]}"), *row[1:]] for row in leader_rows(found)]
    return page(
        "The league · Roamcast",
        element("h1", "The league: who wins where, at what cost"),
        element("p", f"{_what(results)}.", class_="lead"),
        section("Who leads where", table(LEADER_HEADS, leaders, texts=5)),
        section("Over all scenarios", table(RANK_HEADS, rank_rows(found), texts=1)),
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
    description = results.description
    done = len(results.runs) - len(results.failed)
    failed = f", {len(results.failed)} failed" if results.failed else ""
    seeds = numbered(description.seeds)
    return f"Roamcast {description.roamcast}, {done:,} runs{failed}, seeds {seeds}"


def _grid(found: Standing, quantity: Quantity) -> str:
    rows = []
    for scenario in found.scenarios:
        row = [_link(scenario, scenario)]
        for entry in found.entries:
            score = found.score(quantity, scenario, entry)
            text = with_interval(score.found)
            row.append(_link(f"**{text}**" if score.leads else text, scenario))
        rows.append(row)
    return f"### {_titled(quantity)}\n\n{quantity.meaning}.\n\n{_table(['scenario', *found.entries], rows)}"


def _html_grid(found: Standing, quantity: Quantity) -> Markup:
    rows = []
    for scenario in found.scenarios:
        row = [element("a", scenario, href=f"#{scenario}")]
        for entry in found.entries:
            score = found.score(quantity, scenario, entry)
            text = with_interval(score.found)
            row.append(element("a", element("b", text) if score.leads else text, href=f"#{scenario}"))
        rows.append(row)
    note = f"{quantity.meaning}. Bold: the best of the row, and what cannot be told apart from it."
    return section(
        _titled(quantity),
        element("p", note, class_="note"),
        table(["scenario", *found.entries], rows, texts=1),
    )


def _titled(quantity: Quantity) -> str:
    name = quantity.name.capitalize()
    return f"{name} ({quantity.unit})" if quantity.unit else name


def _failed(results: Results) -> list[Markup]:
    if not results.failed:
        return [element("p", "None.")]
    rows = [(*results.cells[run.cell].values(), run.seed, run.error) for run in results.failed]
    return [table(["entry", "scenario", "seed", "error"], rows, texts=4)]


def _link(text: str, scenario: str) -> str:
    return f"[{text}](#{scenario})"


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = (heads, ["---"] * len(heads), *rows)
    return "\n".join(f"| {' | '.join(map(_in_a_cell, line))} |" for line in lines)


def _in_a_cell(text: str) -> str:
    """What an entry says about itself comes from others' files."""
    return " ".join(text.replace("|", "/").replace("<", "‹").split())

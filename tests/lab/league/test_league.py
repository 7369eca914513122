"""The league: scenarios that are whole, entries from anywhere, and a page that says who leads."""

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from roamcast.cli import app
from roamcast.errors import InputError
from roamcast.lab.league import league as contest_module
from roamcast.lab.league.league import (
    FOLDER,
    SEEDS,
    about,
    contest,
    html,
    indicator_rows,
    leader_rows,
    markdown,
    to_decide,
)
from roamcast.lab.league.standing import COST, DELIVERY, LATENCY, standing
from roamcast.lab.sweep.results import Description, Results, Run
from roamcast.scenario import load_scenario
from roamcast.strategy import STRATEGIES

GOSSIP = Path(__file__).parents[3] / "examples" / "gossip"
VARIANTS = {"scenario": {"square": {"workload.size": 100}, "field": {"workload.size": 10}}}
SCENARIO = """# A line that says what it stands for.
[scenario]
name = "{name}"
duration = 4.0
[world]
nodes = 4
area = [100.0, 100.0]
range = {reach}
mobility = {{ model = "random_waypoint", speed = [1.0, 2.0], pause = [0.0, 0.0] }}
[strategy]
name = "epidemic"
"""


def results(figures: dict[str, dict[tuple[str, str], list[float]]], seeds: int = 5) -> Results:
    """Of two entries and two scenarios; each figure by (entry, scenario), a value per seed."""
    axes = {"entry": ["quick", "slow"], "scenario": ["square", "field"]}
    places = [(entry, scenario) for entry in axes["entry"] for scenario in axes["scenario"]]
    return Results(
        Description(experiment="league", roamcast="0", scenario={}, axes=axes, seeds=list(range(seeds))),
        [Run(f"{cell}-{seed}", cell, seed, "ok", "") for cell in range(4) for seed in range(seeds)],
        {
            name: {places.index(place): dict(enumerate(values)) for place, values in by_place.items()}
            for name, by_place in figures.items()
        },
    )


def figures() -> dict[str, dict[tuple[str, str], list[float]]]:
    """On the square `quick` is clearly better; in the field the two differ by chance only."""
    quick, slow = "quick", "slow"
    delivery = {
        (quick, "square"): [0.90, 0.91, 0.92, 0.93, 0.94],
        (slow, "square"): [0.70, 0.72, 0.71, 0.73, 0.75],
        (quick, "field"): [0.50, 0.60, 0.70, 0.55, 0.65],
        (slow, "field"): [0.60, 0.50, 0.65, 0.70, 0.50],
    }
    return {
        "delivery_of_limit": delivery,
        "delivery_ratio": {place: [0.5] * 5 for place in delivery},  # decides nothing
        "limit_delivery": {place: [0.8] * 5 for place in delivery},
        "reachable_ratio": {place: [0.7] * 5 for place in delivery},
        "degree_mean": {place: [4.0] * 5 for place in delivery if place[0] == slow},
        "airtime_of_limit": {place: [3.0] * 5 for place in delivery},
        "latency_p95": {place: [1.0, 1.1, 1.2, 1.3, 1.4] for place in delivery},
        "delivered": {place: [10.0] * 5 for place in delivery},
        "control_bytes": {place: [50.0 if place[0] == slow else 500.0] * 5 for place in delivery},
        "data_bytes": {place: [500.0] * 5 for place in delivery},
    }


def test_what_differs_beyond_chance_leads_alone_and_what_does_not_shares_the_lead() -> None:
    found = standing(results(figures()), VARIANTS)
    assert found.leaders(DELIVERY, "square") == ["quick"]
    assert found.leaders(DELIVERY, "field") == ["quick", "slow"]
    assert [(rank.entry, rank.leads) for rank in found.ranks] == [("quick", 2), ("slow", 1)]


def test_only_those_that_lead_on_delivery_are_compared_by_cost() -> None:
    found = standing(results(figures()), VARIANTS)
    assert found.score(COST, "square", "slow").found.mean == pytest.approx(550 / 1000)
    assert found.leaders(COST, "square") == ["quick"]  # although `slow` sends less for each octet
    assert found.leaders(COST, "field") == ["slow"]
    assert found.leaders(LATENCY, "field") == ["quick", "slow"]  # equal in every run
    assert leader_rows(found)[1][2:4] == ["all, none told apart", "slow"]
    assert leader_rows(found)[1][5] == "3.00"


def test_it_says_how_many_seeds_would_decide() -> None:
    """Field: the differences are 0.1, -0.1, -0.05, 0.15, -0.15; with mean -0.01 and deviation 0.12942 an
    effect of 0.07727. Two comparisons, so 0.05 / 2 in two tails: (2.2414 + 0.8416)² / 0.07727² + 2 is
    1594.2."""
    found = standing(results(figures()), VARIANTS)
    assert found.needed == {"field": 1595}
    assert "with 5 seeds" in to_decide(found) and "field 1595." in to_decide(found)
    given = figures()
    given["delivery_of_limit"]["slow", "field"] = given["delivery_of_limit"]["quick", "field"]
    assert "more seeds decide nothing" in to_decide(standing(results(given), VARIANTS))


def test_what_a_scenario_is_like_does_not_depend_on_the_entry() -> None:
    assert indicator_rows(standing(results(figures()), VARIANTS))[0] == [
        *("square", "0.800", "–", "4.00", "0.300", "–")
    ]


def test_an_entry_that_delivers_nothing_has_no_cost_and_does_not_lead() -> None:
    given = figures()
    given["delivery_of_limit"]["slow", "square"] = [0.0] * 5
    given["delivered"]["slow", "square"] = [0.0] * 5
    found = standing(results(given), VARIANTS)
    assert found.score(COST, "square", "slow").found.mean is None
    assert found.leaders(DELIVERY, "square") == ["quick"]


def test_one_seed_tells_nobody_apart() -> None:
    given = {name: {at: values[:1] for at, values in of.items()} for name, of in figures().items()}
    assert standing(results(given, seeds=1), VARIANTS).leaders(DELIVERY, "square") == ["quick", "slow"]


def test_the_league_has_a_dozen_scenarios_and_every_strategy() -> None:
    league = contest("full")
    assert len(league.scenarios) == 12 and SEEDS["full"] == 10
    assert {entry.strategy.name for entry in league.entries} == set(STRATEGIES.own_names())
    for name, text in league.scenarios.items():
        assert len(about(text)) > 100, f"{name} does not say what it stands for"
        assert load_scenario(FOLDER / "scenarios" / f"{name}.toml").scenario.name == name


def test_every_cell_of_the_page_is_linked_to_its_scenario() -> None:
    league = contest("quick")
    found = standing(results(figures()), VARIANTS)
    page = markdown(league, results(figures()), found)
    assert "| [square](#square) | [**0.920 ± 0.020**](#square) | [0.722 ± 0.024](#square) |" in page
    anchors = set(re.findall(r"^### (\S+)$", page, re.MULTILINE))
    assert set(league.scenarios) <= anchors
    assert 'href="#square"><b>0.920 ± 0.020</b>' in html(league, results(figures()), found)


def test_what_an_entry_says_about_itself_stays_in_its_cell(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('[[entry]]\nname = "x"\nabout = "a | b\\n<script>"\nstrategy = { name = "tree" }')
    league = contest("quick", [path])
    page = markdown(league, results(figures()), standing(results(figures()), VARIANTS))
    assert "\n| x | a / b ‹script> |\n" in page


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('[[entry]]\nname = "tree"\nstrategy = { name = "tree" }', "'tree' takes part already"),
        (
            '[[entry]]\nname = "x"\nstrategy = { name = "treee" }',
            'mine.toml: entry[0].strategy.name: is "treee"',
        ),
        ('[[entry]]\nname = "x"', "strategy"),
        ("entry = []", "entry"),
        (
            'modules = ["nowhere_at_all"]\n[[entry]]\nname = "x"\nstrategy = { name = "tree" }',
            "nowhere_at_all",
        ),
    ],
)
def test_a_bad_entry_is_refused_in_one_line_before_anything_runs(
    tmp_path: Path, text: str, problem: str
) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        contest("quick", [path])
    assert problem in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.spark
def test_the_command_runs_a_league_with_an_entry_from_outside_and_writes_its_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = tmp_path / "league"
    (small / "scenarios").mkdir(parents=True)
    for name, reach in (("near", 150.0), ("far", 40.0)):
        (small / "scenarios" / f"{name}.toml").write_text(SCENARIO.format(name=name, reach=reach))
    (small / "entries.toml").write_text('[[entry]]\nname = "flooding"\nstrategy = { name = "flooding" }\n')
    monkeypatch.setattr(contest_module, "FOLDER", small)
    monkeypatch.setattr(contest_module, "SEEDS", {"quick": 2, "full": 3})
    out, page, first_page = tmp_path / "out", tmp_path / "page.md", tmp_path / "first.md"
    first_page.write_text("Before.\n<!-- league: begin, by us -->\nold\n<!-- league: end -->\nAfter.\n")
    arguments = ["league", "--enter", str(GOSSIP / "league.toml"), "--out", str(out), "--page", str(page)]
    arguments += ["--seed", "901", "--verdict", str(first_page)]
    answer = CliRunner().invoke(app, arguments)
    assert answer.exit_code == 0, answer.output
    assert max(map(len, answer.output.splitlines()[:-1])) <= 80
    assert "gossip" in answer.output and "near" in answer.output
    text = page.read_text()
    assert "8 runs, seeds 901, 902" in text and text == (out / "league.md").read_text()
    assert re.search(r"\| \[near\]\(#near\) \| \[\*\*1.000 ± 0\*\*\]\(#near\)", text)
    assert (out / "league.html").is_file()
    said = first_page.read_text()
    assert (
        said.startswith("Before.\n<!-- league: begin, by us -->\nOf the pairs that *any*")
        and "old" not in said
    )
    assert "`flooding` serves 1.000 ± 0 and leads in 2 of 2 scenarios" in said and said.endswith(
        "-->\nAfter.\n"
    )
    before = set((out / "manifest").iterdir())
    answer = CliRunner().invoke(app, [*arguments, "--profile", "full"])
    assert answer.exit_code == 0, answer.output
    assert "12 runs, seeds 901 to 903" in page.read_text()
    assert before < set((out / "manifest").iterdir())  # `full` ran only what `quick` had not

"""The dashboard and the pages name metrics that a node gives, each with a line that says what it means."""

import json
import re
from pathlib import Path

from roamcast.runtime.live.report.counters import HELP

ROOT = Path(__file__).parents[2]
DASHBOARD = ROOT / "examples" / "deploy" / "grafana-dashboard.json"


def test_each_panel_of_the_dashboard_asks_for_metrics_that_exist_in_their_own_way() -> None:
    dashboard = json.loads(DASHBOARD.read_text())
    expressions = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    assert len(expressions) >= 10
    for expression in expressions:
        (name,) = re.findall(r"roamcast_(\w+)", expression)
        assert name in HELP, expression
        assert name.endswith("_total") == bool(re.search(r"\b(rate|increase)\(", expression)), expression
    numbers = [panel["id"] for panel in dashboard["panels"]]
    assert len(set(numbers)) == len(numbers)


METRIC = re.compile(r"`(?:roamcast_)?(\w+_total)`")
OF_THE_STATUS = {"peers_total", "subscriptions_total"}  # fields of the document, no metrics


def test_every_metric_that_a_page_names_is_given_with_its_meaning() -> None:
    named = {
        (page.name, name)
        for page in (ROOT / "docs").rglob("*.md")
        for name in METRIC.findall(page.read_text())
        if name not in OF_THE_STATUS
    }
    assert len(named) > 20
    assert {(page, name) for page, name in named if name not in HELP} == set()


def test_the_table_of_what_to_look_at_first_has_metrics_only() -> None:
    section = (ROOT / "docs" / "use" / "operate.md").read_text().split("## Metrics")[1]
    cells = [line.split("|")[2] for line in section.splitlines() if line.startswith("|")][2:]
    names = [name for cell in cells for name in re.findall(r"`(\w+)`", cell)]
    assert len(names) > 15 and set(names) <= set(HELP)

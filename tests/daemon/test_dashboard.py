"""The dashboard asks for metrics that a node has, and the documentation has every metric."""

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


def test_every_metric_is_in_the_documentation_with_its_meaning() -> None:
    page = (ROOT / "docs" / "use" / "operate.md").read_text()
    missing = [name for name, text in HELP.items() if f"| `{name}` | {text} |" not in page]
    assert not missing

"""What the strategies declare to promise, and the page that says so. The suite itself tests the promises."""

from pathlib import Path

from roamcast.strategy import STRATEGIES
from roamcast.testing.contract import PROMISES

PAGE = Path(__file__).parents[2] / "docs/use/promises.md"


def table() -> list[str]:
    rows = []
    for name in STRATEGIES.own_names():
        declared = STRATEGIES.declared(name)
        words = ["yes" if getattr(declared, promise) else "no" for promise in PROMISES]
        rows.append(f"| `{name}` | {' | '.join(words)} | {declared.order} |")
    return rows


def test_the_table_for_users_is_what_the_strategies_declare() -> None:
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    assert rows == table(), "the table should be:\n" + "\n".join(table())


def test_every_promise_that_can_be_declared_is_tested() -> None:
    declared = STRATEGIES.declared("flooding")._fields
    assert [field for field in declared if field.startswith("survives_")] == list(PROMISES)

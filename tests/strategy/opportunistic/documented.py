"""The adaptor that `docs/protocols/adaptors.md` shows, as its readers would add it."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from roamcast.strategy.opportunistic.adaptation import ADAPTORS


@contextmanager
def documented_adaptor() -> Iterator[str]:
    """Within, `low_memory` can be named; the page's text."""
    page = (Path(__file__).parents[3] / "docs" / "protocols" / "adaptors.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert len(block.splitlines()) < 50
    try:
        exec(block, {})
        yield page
    finally:
        ADAPTORS.pop("low_memory", None)

"""Long suites, played on demand only: `python -m pytest tests/torture` (`make torture`)."""

from pathlib import Path

import pytest


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """A run that does not name this folder passes it by."""
    return None if any("torture" in argument for argument in config.args) else True

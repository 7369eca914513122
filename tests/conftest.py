"""What all tests share."""

import os

import pytest
from hypothesis import settings

# A slow machine is no failure; and CI must not fail today on what it passed yesterday. At a developer's
# desk every run draws new examples, and what fails becomes a named test.
settings.register_profile("desk", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "desk")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that need Spark run in one worker, so that they share one session: starting it is slow.

    A test that starts Spark processes of its own names another group, and runs beside the others.
    """
    for item in items:
        if item.get_closest_marker("spark") and not item.get_closest_marker("xdist_group"):
            item.add_marker(pytest.mark.xdist_group("spark"))

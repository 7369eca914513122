"""What all tests share."""

import os

import pytest
from hypothesis import settings

# A slow machine is no failure; and CI must not fail today on what it passed yesterday. At a developer's
# desk every run draws new examples, and what fails becomes a named test.
settings.register_profile("desk", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "desk")

# Small data: a machine of 4 GB shall bear two workers and all the Java processes of a cluster.
os.environ["SPARK_DRIVER_MEMORY"] = "1g"
os.environ["SPARK_EXECUTOR_MEMORY"] = "600m"
os.environ["SPARK_DAEMON_MEMORY"] = "256m"


@pytest.hookimpl(tryfirst=True)  # before xdist looks at the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that need Spark run in one worker and share one session: starting it is slow, and Java works its
    way up to speed. The other worker does the rest meanwhile."""
    for item in items:
        if item.get_closest_marker("spark"):
            item.add_marker(pytest.mark.xdist_group("spark"))

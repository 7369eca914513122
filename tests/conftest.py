"""What all tests share."""

import os

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

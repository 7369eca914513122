"""`requirements.lock` pins what `pyproject.toml` asks for. Where this fails, `make lock` mends it."""

import re
import tomllib
from itertools import chain
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
LINE = re.compile(r'([A-Za-z0-9._-]+)==([^ ]+) ; python_version == "3\.11"')


def test_every_line_pins_one_version_for_the_python_that_the_lock_is_for() -> None:
    lines = (ROOT / "requirements.lock").read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if not line.startswith("#") and not LINE.fullmatch(line)] == []


def test_every_dependency_is_pinned_to_a_version_that_it_allows() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    asked = [*project["dependencies"], *chain.from_iterable(project["optional-dependencies"].values())]
    pinned = {
        canonicalize_name(name): version
        for name, version in LINE.findall((ROOT / "requirements.lock").read_text(encoding="utf-8"))
    }
    for requirement in map(Requirement, asked):
        name = canonicalize_name(requirement.name)
        if name != project["name"]:  # an extra that names another extra of this project
            assert name in pinned, f"{requirement} is not in the lock"
            assert requirement.specifier.contains(pinned[name], prereleases=True), requirement

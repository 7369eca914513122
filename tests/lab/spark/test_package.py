"""What workers need, as an archive: the packages that are installed here, and an interpreter that finds them.
`tests/lab/sweep/test_cluster.py` sends the whole of it to workers that have none."""

import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from roamcast.lab.spark import package


def test_an_archive_has_an_interpreter_that_finds_its_packages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(package, "PACKAGES", ("msgspec", "python-dateutil"))
    assert {each.name for each in package.with_needed()} == {"msgspec", "python-dateutil", "six"}
    assert package.main([str(tmp_path / "a.tar.gz")]) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'a.tar.gz'}: 0 MB\n"
    package.pack(str(tmp_path / "b.tar.gz"))
    assert (tmp_path / "a.tar.gz").read_bytes() == (tmp_path / "b.tar.gz").read_bytes()
    assert sorted(file.name for file in tmp_path.iterdir()) == ["a.tar.gz", "b.tar.gz"]
    with tarfile.open(tmp_path / "a.tar.gz") as archive:
        archive.extractall(tmp_path / "environment", filter="data")
    said = subprocess.run(
        [tmp_path / "environment" / "bin" / "python", "-c", "import msgspec, six; print(msgspec.__file__)"],
        env={"PATH": f"{sys.base_prefix}/bin:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert Path(said.strip()).resolve() == tmp_path / "environment" / "site" / "msgspec" / "__init__.py"


def test_what_cannot_be_packed_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert package.main([]) == package.main(["x.zip"]) == 2
    monkeypatch.setattr(package, "PACKAGES", ("no-such-package",))
    assert package.main([str(tmp_path / "a.tar.gz")]) == 2
    (tmp_path / "file").touch()
    monkeypatch.setattr(package, "PACKAGES", ("six",))
    assert package.main([str(tmp_path / "file" / "a.tar.gz")]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 4 and "takes one argument" in lines[0] and "….tar.gz" in lines[1]
    assert lines[2] == "no-such-package: is not installed; allowed: an environment with roamcast[lab]"
    assert lines[3].startswith(f"{tmp_path / 'file' / 'a.tar.gz'}: cannot be written: ")

"""The one Spark session: quiet, single, and clear about what it cannot do."""

import os
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from pyspark import SparkFiles

from roamcast.errors import InputError
from roamcast.lab.spark import session as session_module
from roamcast.lab.spark import settings
from roamcast.lab.spark.session import _name_interpreters, mapped, session
from roamcast.lab.spark.settings import SparkSettings, resolved_master, usable_cores

DATA = Path(__file__).parents[2] / "data"


@pytest.mark.parametrize(
    ("master", "resolved"),
    [
        (None, f"local[{usable_cores()},4]"),
        ("local", "local[1,4]"),
        ("local[3]", "local[3,4]"),
        ("local[*]", "local[*,4]"),
        ("local[2,7]", "local[2,7]"),
        ("spark://a:7077", "spark://a:7077"),
        ("spark://a:7077,b:7077", "spark://a:7077,b:7077"),
        ("yarn", "yarn"),
        ("k8s://https://a:443", "k8s://https://a:443"),
        ("sc://a", "sc://a"),
        ("sc://a:15002/;use_ssl=true", "sc://a:15002/;use_ssl=true"),
    ],
)
def test_local_masters_retry_and_others_are_left_alone(master: str | None, resolved: str) -> None:
    assert resolved_master(master) == resolved


@pytest.mark.parametrize(
    "master",
    ["", "locale", "local[0]", "local[2", "local[x]", "spark://", "spark://a", "http://a:1", "sc://"],
)
def test_a_master_that_is_none_is_refused_before_anything_starts(master: str) -> None:
    with pytest.raises(InputError, match="allowed: local"):
        resolved_master(master)


def test_a_cluster_that_does_not_answer_is_said_at_once() -> None:
    script = """
        import sys
        from roamcast.errors import InputError
        from roamcast.lab.spark.session import session
        try:
            session("spark://127.0.0.1:1")
        except InputError as error:
            print(error)
    """
    done = run(script)
    assert done.stdout.startswith("master: spark://127.0.0.1:1 does not answer (Connection refused)")
    assert done.stdout.count("\n") == 1 and done.stderr == ""


@pytest.mark.spark
def test_the_options_of_a_command_reach_spark_and_it_prints_nothing_but_its_own(tmp_path: Path) -> None:
    interpreter = tmp_path / "python"
    noisy = f"#!/bin/sh\ntouch {tmp_path}/was-used\necho noise >&2\n"
    interpreter.write_text(f'{noisy}exec {sys.executable} "$@"\n')
    interpreter.chmod(0o755)
    command = [sys.executable, "-m", "roamcast", "contacts", str(DATA / "sample.csv"), "--range", "250"]
    command += ["--out", "plan.csv", "--ui", "--event-log", "log", "--conf", "spark.app.name=of the user"]
    environment = os.environ | {"PYSPARK_PYTHON": str(interpreter)}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=240, check=True
    )
    assert "contacts of" in done.stdout and done.stdout.count("\n") == 1
    assert done.stderr.startswith("roamcast: Spark's pages are at http://127.0.0.1:")
    assert done.stderr.count("\n") == 1, "neither Java nor a worker says anything here"
    assert (tmp_path / "was-used").exists(), "workers run what PYSPARK_PYTHON names"
    logs = [file for file in (tmp_path / "log").rglob("*") if file.is_file() and file.stat().st_size]
    assert logs and any(b"of the user" in _unzipped(file) for file in logs)


def _unzipped(file: Path) -> bytes:
    if file.suffix != ".zstd":
        return file.read_bytes()
    return bytes(pa.CompressedInputStream(str(file), "zstd").read())


def test_settings_of_spark_are_checked_before_it_starts(tmp_path: Path) -> None:
    try:
        settings.ask(("spark.a=b=c",), "packed.tar.gz", ui=True, event_log=str(tmp_path / "new"))
        assert settings.asked.conf["spark.a"] == "b=c" and settings.asked.conf["spark.ui.enabled"] == "true"
        assert settings.asked.conf["spark.eventLog.dir"] == (tmp_path / "new").as_uri()
        assert (tmp_path / "new").is_dir()
        assert settings.asked.archives == "packed.tar.gz#environment"
        assert settings.asked.python == "./environment/bin/python"
        settings.ask((), "packed.tar.gz#mine", ui=False, event_log=None)
        assert settings.asked.python == "./mine/bin/python" and not settings.asked.conf
        for text in ("spark.a", "=b", "spark a=b"):
            with pytest.raises(InputError, match=r"--conf: is .*allowed: KEY=VALUE"):
                settings.ask((text,), None, ui=False, event_log=None)
        with pytest.raises(InputError, match="--archives: is for workers of a cluster"):
            _name_interpreters("local[2]", settings.asked)
    finally:
        settings.ask((), None, ui=False, event_log=None)


@pytest.mark.parametrize(
    ("given", "archives", "named"),
    [
        ("", "", sys.executable),
        ("/opt/python", "", "/opt/python"),
        ("", "packed.tar.gz#mine", "./mine/bin/python"),
        ("/opt/python", "packed.tar.gz#mine", "./mine/bin/python"),
        ("./mine/python3", "packed.tar.gz#mine", "./mine/python3"),
    ],
)
def test_workers_run_what_the_user_names(
    given: str, archives: str, named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", given)
    monkeypatch.setenv("PYSPARK_DRIVER_PYTHON", "")
    monkeypatch.setattr(session_module, "_named", "")
    for _ in range(2):  # a second session of the process means the same
        _name_interpreters("spark://a:7077", SparkSettings({}, archives))
        assert os.environ["PYSPARK_PYTHON"] == named


@pytest.mark.spark
def test_what_java_cannot_start_with_is_one_line() -> None:
    script = """
        from roamcast.errors import InputError
        from roamcast.lab.spark.session import session
        from roamcast.lab.spark.settings import SparkSettings
        try:
            session(settings=SparkSettings({"spark.driver.memory": "lots"}))
        except InputError as error:
            print(error)
    """
    done = run(script)
    assert done.stdout.count("\n") == 1 and done.stderr == ""
    assert done.stdout.startswith("Spark: did not start on local[") and "lots" in done.stdout


@pytest.mark.spark
def test_workers_run_this_interpreter_and_leave_nothing_behind() -> None:
    def place(_: int) -> tuple[str, str]:
        return sys.executable, tempfile.gettempdir()

    spark = session()
    assert session() is spark and spark.conf.get("spark.sql.session.timeZone") == "UTC"
    # What workers unpack is in the folder that Spark removes when it ends.
    assert mapped(spark, place, [0]) == [(sys.executable, SparkFiles.getRootDirectory())]


def run(script: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", textwrap.dedent(script)]
    return subprocess.run(command, capture_output=True, text=True, timeout=240, check=True)


def test_what_java_says_at_every_start_is_no_complaint() -> None:
    """Java was killed while it started: it was said to have complained of its own log level."""
    ended = RuntimeError("Java ended")
    with tempfile.TemporaryFile() as log:
        log.write(b"Using Spark's default log4j profile: error.properties\n")
        log.write(b'Setting Spark log level to "ERROR".\nSetting default log level to "ERROR".\n')
        assert session_module._reason(ended, log) == "Java ended"
        log.write(b"Error: Could not find or load main class x\n")
        assert session_module._reason(ended, log) == "Error: Could not find or load main class x"

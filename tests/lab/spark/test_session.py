"""The one Spark session: quiet, single, and clear about what it cannot do."""

import subprocess
import sys
import textwrap

import pytest

from roamcast.errors import InputError
from roamcast.lab.spark.session import resolved_master, session, usable_cores


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
    ],
)
def test_local_masters_retry_and_others_are_left_alone(master: str | None, resolved: str) -> None:
    assert resolved_master(master) == resolved


@pytest.mark.parametrize(
    "master",
    ["", "locale", "local[0]", "local[2", "local[x]", "spark://", "spark://a", "http://a:1", "sc://a"],
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
def test_a_job_prints_nothing_but_its_own_output() -> None:
    script = """
        import sys
        from roamcast.lab.spark.session import session
        spark = session()
        assert session() is spark
        def noisy(number):
            print("from a worker", file=sys.stderr)
            return number * number
        print(spark.sparkContext.parallelize(range(4), 2).map(noisy).sum())
        print(spark.sql("SELECT current_timezone() AS zone, sum(id) AS total FROM range(5)").collect())
    """
    done = run(script)
    assert (done.stdout, done.stderr) == ("14\n[Row(zone='UTC', total=10)]\n", "")


@pytest.mark.spark
def test_what_java_cannot_start_with_is_one_line() -> None:
    script = """
        from roamcast.errors import InputError
        from roamcast.lab.spark.session import session
        try:
            session(settings={"spark.driver.memory": "lots"})
        except InputError as error:
            print(error)
    """
    done = run(script)
    assert done.stdout.count("\n") == 1 and done.stderr == ""
    assert done.stdout.startswith("Spark: did not start on local[") and "lots" in done.stdout


@pytest.mark.spark
def test_workers_run_this_interpreter() -> None:
    def interpreter(_: int) -> str:
        return sys.executable

    assert session().sparkContext.parallelize([0], 1).map(interpreter).collect() == [sys.executable]


@pytest.mark.spark
def test_work_goes_on_when_java_is_killed() -> None:
    script = """
        from pyspark import SparkContext
        from roamcast.errors import RoamcastError
        from roamcast.lab.spark.session import with_session
        deaths = []
        def dies(spark):
            if len(deaths) < limit:
                deaths.append(spark)
                SparkContext._gateway.proc.kill()
            return spark.sparkContext.parallelize(range(4), 2).map(lambda number: number + 1).sum()
        limit = 1
        print(with_session(None, dies))
        limit = 3
        try:
            with_session(None, dies, "what stands is kept")
        except RoamcastError as error:
            print(len(deaths), error)
    """
    said = "3 Spark gave up: Java ended (killed?); what stands is kept"
    assert run(script).stdout.splitlines() == ["10", said]  # PySpark's threads complain of it, too


def run(script: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", textwrap.dedent(script)]
    return subprocess.run(command, capture_output=True, text=True, timeout=240, check=True)

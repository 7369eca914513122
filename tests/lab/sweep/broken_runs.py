"""A sweep in which runs fail, played in small by the tests and at full length by `make torture`."""

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq  # type: ignore[import-untyped]

from roamcast.lab.sweep.experiment import experiment_from
from roamcast.lab.sweep.sweep import sweep

LINKS: dict[str, Any] = {
    "scenario": {"name": "links", "duration": 2.0},
    "world": {"contacts": "0.csv"},
    "workload": {"rate": 4.0},
    "strategy": {"name": "flooding"},
}


def some_fail_and_are_mended(tmp_path: Path, count: int) -> None:
    """Of a sweep of `count` runs three fail; resumed with whole files, it runs those three and no others."""
    names = [f"{number}.csv" for number in range(count)]
    for number, name in enumerate(names):
        (tmp_path / name).write_text(f"time,i,j,state\n0,0,1,up\n{number / 100},0,2,up\n")
    experiment = experiment_from("links", LINKS, {"world.contacts": names}, base=tmp_path)
    broken = ["17.csv", "18.csv", f"{count - 9}.csv"]
    content = {name: (tmp_path / name).read_text() for name in broken}
    (tmp_path / "17.csv").unlink()
    (tmp_path / "18.csv").write_text("time,i,j,state\n0,0,0,up\n")
    (tmp_path / broken[2]).write_bytes(b"\xff\xfe")
    result = sweep(experiment, tmp_path / "out")
    assert (result.done, result.failed, result.total, result.ran) == (count - 3, 3, count, count)
    runs = pq.read_table(tmp_path / "out" / "runs").to_pylist()
    assert len(runs) == count
    failed = {row["world_contacts"]: row for row in runs if row["status"] == "failed"}
    assert sorted(failed) == sorted(broken)
    for name, row in failed.items():
        assert name in row["error"] and "\n" not in row["error"]
        assert "Traceback" in row["traceback"] and row["attempt"] == 1 and row["strategy"] == "flooding"
    assert pq.read_table(tmp_path / "out" / "metrics").num_rows == count - 3
    for name, text in content.items():
        (tmp_path / name).write_text(text)
    result = sweep(experiment, tmp_path / "out", resume=True)
    assert (result.done, result.failed, result.total, result.ran) == (count, 0, count, 3)
    metrics = pq.read_table(tmp_path / "out" / "metrics").to_pylist()
    assert [row["world_contacts"] for row in metrics] == names
    runs = pq.read_table(tmp_path / "out" / "runs").to_pylist()
    assert {row["world_contacts"] for row in runs if row["attempt"] == 2} == set(broken)

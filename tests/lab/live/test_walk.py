"""The whole way, by commands alone: two nodes with `[trace]`, events, and the figures on the screen."""

import json
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from tests.daemon.test_daemon import free_port, line_of, program

from roamcast.cli import app

pytestmark = [pytest.mark.spark, pytest.mark.realtime]


def roamcast(*arguments: object) -> Result:
    """A command, in this process: its figures are looked at as a person sees them."""
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@contextmanager
def subscriber(socket: Path, text: str) -> Iterator["subprocess.Popen[str]"]:
    command = [
        sys.executable,
        "-m",
        "roamcast",
        "subscribe",
        "--sql",
        text,
        "--socket",
        str(socket),
        "--json",
    ]
    started = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        yield started
    finally:
        started.kill()
        started.communicate()


def nodes_in(folder: Path) -> tuple[Path, Path]:
    """Two files of one network, made as a person makes them."""
    alice, bob = folder / "alice" / "roamcast.toml", folder / "bob" / "roamcast.toml"
    port = free_port()
    for path in (alice, bob):
        path.parent.mkdir()
        like = ["--like", alice] if path == bob else []
        made = roamcast("node", "--init", path, "--interface", "lo", *like)
        assert made.exit_code == 0, made.output
        text = path.read_text().replace("# port = 4747", f"port = {port}")
        path.write_text(text + '\n[trace]\nfolder = "trace"\nsegment_seconds = 0.5\n')
    return alice, bob


def until(condition: Callable[[], bool]) -> None:
    while not condition():
        time.sleep(0.02)


def is_traced(folder: Path, event: str) -> bool:
    wanted = f'"sequence":{event.split(":")[1]}'.encode()
    for path in folder.iterdir():
        with suppress(FileNotFoundError):  # it got its name meanwhile
            if wanted in path.read_bytes():
                return True
    return False


def test_from_two_nodes_to_figures_reasons_windows_and_archived_events(tmp_path: Path) -> None:
    alice, bob = nodes_in(tmp_path)
    published = []

    def publish(level: int) -> None:
        socket = alice.parent / "roamcast.sock"
        said = roamcast("publish", "--topic", "lamp", "--attribute", f"level={level}", "--socket", socket)
        assert said.exit_code == 0, said.output
        published.append(said.output.strip())

    with program(alice) as first, program(bob) as second:
        for started in (first, second):
            line_of(started, "is node")
        # A node is there a moment before its socket is.
        until(lambda: all((path.parent / "roamcast.sock").exists() for path in (alice, bob)))
        with subscriber(bob.parent / "roamcast.sock", "level > 3") as screen:
            assert screen.stdout is not None
            # Until the subscription stands and the nodes know each other, nothing may arrive.
            for level in range(4, 200):
                publish(level)
                if select.select([screen.stdout], [], [], 0.2)[0]:
                    break
            # The event that arrived first may have been published before the subscription stood: it was not
            # expected then. These two are.
            publish(400)
            publish(1)
            publish(500)
            while json.loads(screen.stdout.readline())["attributes"]["level"] != 500:
                pass
            # A kill may lose a tenth of a second.
            until(lambda: is_traced(bob.parent / "trace", published[-1]))
            second.send_signal(signal.SIGKILL)  # bob is gone, and his subscription stands
            second.wait()
            publish(600)
        first.send_signal(signal.SIGTERM)
        first.communicate(timeout=60)
        first.stderr = first.stdout = None
    # What bob could not end himself is ended when he starts again.
    with program(bob) as second:
        line_of(second, "is node")
        second.send_signal(signal.SIGTERM)
        second.communicate(timeout=60)
        second.stderr = second.stdout = None

    collected = tmp_path / "collected"
    folders = [path.parent / "trace" for path in (alice, bob)]
    said = roamcast("collect", *folders, "--out", collected)
    assert said.exit_code == 0 and " segments copied to " in said.output, said.output
    again = roamcast("collect", *folders, "--out", collected)
    assert again.output.startswith("0 segments copied")

    said = roamcast("metrics", collected)
    assert said.exit_code == 0, said.output
    assert "epidemic, live" in said.output and "\n2 nodes, 0 s is " in said.output
    assert "delivery_ratio" in said.output and "not known of a live network: reachable_ratio" in said.output
    figures = json.loads(roamcast("metrics", collected, "--json").stdout)["metrics"]
    assert figures["published"] == len(published)
    assert figures["delivered"] >= 2 and figures["misdelivered"] == figures["duplicates"] == 0
    assert 0 < figures["latency_p50"] < 30 and figures["hops_mean"] == 1.0
    assert figures["control_messages"] > 0 and figures["reachable_ratio"] is None

    said = roamcast("why", collected, "--json")
    assert said.exit_code == 0, said.output
    reasons = {missing["event"]: missing["reason"] for missing in json.loads(said.stdout)["missing"]}
    assert len(reasons) == figures["expected"] - figures["delivered"]
    lost = f"65536:{published[-1].split(':')[1]}", f"65537:{published[-1].split(':')[1]}"
    assert "subscriber_crashed" in {reasons.get(name) for name in lost}, said.output

    out = tmp_path / "watched"
    said = roamcast("watch", collected, "--out", out, "--once")
    assert said.exit_code == 0, said.output
    lines = [line for line in said.stdout.splitlines() if "delivered" in line]
    assert (
        lines
        and sum(int(line.split("delivered ")[1].split("/")[0]) for line in lines) == figures["delivered"]
    )

    archive = tmp_path / "archive"
    said = roamcast("archive", "add", collected, "--out", archive)
    assert said.exit_code == 0 and said.output.startswith(f"{len(published)} events of "), said.output
    assert roamcast("archive", "add", collected, "--out", archive).output.startswith("0 events of 0")
    said = roamcast("archive", "query", "level > 499 AND ON_TOPIC('lamp')", "--archive", archive, "--json")
    assert said.exit_code == 0, said.output
    assert [row["attributes"]["level"] for row in json.loads(said.stdout)] == [500, 600]
    none = roamcast("archive", "query", "level > 0", "--archive", archive, "--until", "2020-01-01")
    assert none.stdout.strip() == "0 events"

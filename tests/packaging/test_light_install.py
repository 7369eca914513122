"""What a device gets: the wheel without extras, in an empty environment, runs every strategy."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from roamcast.extras import NOT_ON_A_DEVICE
from roamcast.strategy import STRATEGIES

pytestmark = pytest.mark.realtime

ROOT = Path(__file__).parents[2]
SECONDS = 60  # for anything that real nodes do; most take one or two
INSTALLED_BYTES_MAX = 100_000_000
RESIDENT_BYTES_MAX = 50_000_000


@pytest.fixture(scope="module")
def device(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an environment that has nothing but the wheel and what it asks for."""
    folder = tmp_path_factory.mktemp("device")
    source = folder / "source"  # building leaves files beside the sources
    source.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source / name)
    shutil.copytree(ROOT / "src", source / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    done(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, source)
    (wheel,) = folder.glob("roamcast-*.whl")
    environment = folder / "environment"
    done(sys.executable, "-m", "venv", "--without-pip", environment)
    done(sys.executable, "-m", "pip", "--python", environment, "install", "--quiet", wheel)
    return environment


def done(*command: str | Path, code: int = 0) -> "subprocess.CompletedProcess[str]":
    ended = subprocess.run(command, env=clean(), capture_output=True, text=True, timeout=240, check=False)
    assert ended.returncode == code, f"{command}: {ended.stdout}{ended.stderr}"
    return ended


def clean() -> dict[str, str]:
    """Without the sources of this tree on the path."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}


def test_it_is_small_and_has_nothing_of_the_laboratory(device: Path) -> None:
    packages = next((device / "lib").glob("python3*/site-packages"))
    assert (packages / "roamcast").is_dir()
    assert not {each.name for each in packages.iterdir()} & NOT_ON_A_DEVICE
    octets = sum(file.stat().st_size for file in packages.rglob("*") if file.is_file())
    assert octets < INSTALLED_BYTES_MAX


def test_the_league_is_in_the_wheel(device: Path) -> None:
    (league,) = (device / "lib").glob("python3*/site-packages/roamcast/lab/league")
    source = ROOT / "src" / "roamcast" / "lab" / "league"
    files = [file.relative_to(source) for file in source.rglob("*") if file.suffix not in ("", ".pyc")]
    assert [file for file in files if not (league / file).is_file()] == []


def test_the_pages_are_in_the_wheel(device: Path) -> None:
    (pages,) = (device / "lib").glob("python3*/site-packages/roamcast/pages")
    source = ROOT / "src" / "roamcast" / "pages"
    files = [
        file.relative_to(source)
        for file in source.rglob("*")
        if file.suffix in (".js", ".css", ".html", ".svg")
    ]
    assert Path("live/node.html") in files and Path("map.js") in files
    assert [file for file in files if not (pages / file).is_file()] == []


def test_a_node_without_a_page_loads_nothing_for_it(device: Path) -> None:
    script = (
        "import sys, roamcast.daemon, roamcast.gateway.mqtt.listener; sys.exit('websockets' in sys.modules)"
    )
    done(device / "bin" / "python", "-c", script)


def test_a_command_of_the_laboratory_says_what_to_install(device: Path) -> None:
    for command, extra in (("simulate", "sim"), ("why", "sim"), ("report", "lab")):
        said = done(device / "bin" / "roamcast", command, "nothing", code=1).stderr
        assert said.startswith(f"roamcast: {command} needs more than a device has")
        assert said.endswith(f"allowed: pip install 'roamcast[{extra}]'\n") and said.count("\n") == 1


@pytest.fixture(scope="module")
def two_files(device: Path, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """What the commands write for two nodes of a group; the same for each strategy."""
    roamcast, folder = device / "bin" / "roamcast", tmp_path_factory.mktemp("files")
    done(roamcast, "node", "--init", folder / "a.toml", "--interface", "lo")
    done(roamcast, "node", "--init", folder / "b.toml", "--like", folder / "a.toml")
    return [(folder / name).read_text() for name in ("a.toml", "b.toml")]


@pytest.mark.parametrize("strategy", STRATEGIES.own_names())
def test_two_nodes_exchange_an_event(
    device: Path, strategy: str, two_files: list[str], tmp_path: Path
) -> None:
    roamcast = device / "bin" / "roamcast"
    port = free_port()
    files = [tmp_path / "a.toml", tmp_path / "b.toml"]
    for file, text in zip(files, two_files, strict=True):
        text = text.replace("# port = 4747", f"port = {port}")
        file.write_text(text.replace("# [strategy]\n", f'[strategy]\nname = "{strategy}"\n'))
        file.chmod(0o600)  # it has keys
    with running(roamcast, "node", files[0]) as one, running(roamcast, "node", files[1]) as other:
        sockets = [file.with_suffix(".sock") for file in files]
        wait_for(sockets, one, other)
        wanted = ["--topic", "alarm/#", "--sql", "level > 3", "--count", "1", "--socket", str(sockets[1])]
        with running(roamcast, "subscribe", *wanted) as subscriber:
            publish_until(subscriber, roamcast, sockets[0])
            assert subscriber.stdout is not None
            assert subscriber.stdout.read() == "alarm/fire level=5 smoke\n"
        assert resident(one) < RESIDENT_BYTES_MAX
        for node in (one, other):
            node.send_signal(signal.SIGTERM)
            assert node.wait(SECONDS) == 0


def publish_until(subscriber: "subprocess.Popen[str]", roamcast: Path, socket: Path) -> None:
    """Again and again: how long a subscription takes to reach the publisher is the strategy's own affair."""
    ends_at = time.monotonic() + SECONDS
    while subscriber.poll() is None:
        assert time.monotonic() < ends_at, "nothing arrived"
        words = ["publish", "--topic", "alarm/fire", "--attribute", "level=5", "--payload", "smoke"]
        done(roamcast, *words, "--socket", socket)
        time.sleep(0.2)


def wait_for(sockets: list[Path], *nodes: "subprocess.Popen[str]") -> None:
    ends_at = time.monotonic() + SECONDS
    while not all(path.exists() for path in sockets):
        assert all(node.poll() is None for node in nodes), "a node has ended"
        assert time.monotonic() < ends_at, "a node does not start"
        time.sleep(0.05)


@contextmanager
def running(*command: str | Path) -> Iterator["subprocess.Popen[str]"]:
    started = subprocess.Popen(command, env=clean(), stdout=subprocess.PIPE, text=True)
    try:
        yield started
    finally:
        started.kill()
        started.communicate()


def free_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        number: int = probe.getsockname()[1]
        return number


def resident(process: "subprocess.Popen[str]") -> int:
    """Octets of memory, as Linux counts them."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    (line,) = [line for line in status.splitlines() if line.startswith("VmRSS:")]
    return int(line.split()[1]) * 1024

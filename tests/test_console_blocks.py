"""Every console block of README and of the pages for users, run as it is printed.

A page's blocks are pasted one after the other into one shell, in a fresh folder in which only `examples/` is,
as in a checkout. Lines that begin with `$ ` are commands; the others are what a reader is promised to see, in
any order, because programs in the background print when they like; `…` stands for anything. A command that
fails ends the page.

A block that cannot run here says so to its readers too, by a comment at its beginning: `# Not run by the
tests:` and why.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest

pytestmark = pytest.mark.realtime

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs" / "use").glob("*.md"))]
CONSOLE = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SHELL = re.compile(
    r"^```(?:sh|bash|shell)?\n((?:roamcast|mosquitto_\w+|python) .*?)^```$", re.MULTILINE | re.DOTALL
)
NOT_RUN = re.compile(r"# Not run by the tests: \S.+")
SECONDS = 120  # for one block; a busy machine needs a tenth of it


class Block(NamedTuple):
    text: str

    @property
    def is_run(self) -> bool:
        return NOT_RUN.match(self.text) is None

    @property
    def commands(self) -> str:
        return "\n".join(line for line, is_command in self._lines() if is_command)

    @property
    def promised(self) -> list[str]:
        return [line for line, is_command in self._lines() if not is_command and line.strip()]

    def _lines(self) -> list[tuple[str, bool]]:
        """A command may go on: after a backslash, or to the end of a here document."""
        found: list[tuple[str, bool]] = []
        goes_on, ends_with = False, None
        for line in self.text.splitlines():
            is_command = line.startswith("$ ") or goes_on or ends_with is not None
            found.append((line.removeprefix("$ "), is_command))
            if is_command:
                goes_on = line.endswith("\\")
                if ends_with is None and (here := re.search(r"<<-? ?'?(\w+)'?", line)):
                    ends_with = here[1]
                elif line == ends_with:
                    ends_with = None
        return found


def blocks(page: Path) -> list[Block]:
    return [Block(text) for text in CONSOLE.findall(page.read_text(encoding="utf-8"))]


def runnable(page: Path) -> list[Block]:
    return [block for block in blocks(page) if block.is_run]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_block_has_commands_or_says_why_it_is_not_run(page: Path) -> None:
    for block in runnable(page):
        assert block.commands, block.text
    hidden = SHELL.findall(page.read_text(encoding="utf-8"))
    assert not hidden, "commands of ours stand in ```console blocks, which are run"


@pytest.mark.parametrize("page", [page for page in PAGES if runnable(page)], ids=lambda page: page.name)
def test_the_blocks_of_a_page_do_what_they_promise(page: Path, tmp_path: Path) -> None:
    chosen = runnable(page)
    for tool in {word for block in chosen for word in re.findall(r"\bmosquitto_\w+", block.commands)}:
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed")
    folder, control = tmp_path / "folder", tmp_path / "control"
    folder.mkdir()
    control.mkdir()
    (folder / "examples").symlink_to(ROOT / "examples")
    said = control / "said"
    script = control / "page.sh"
    script.write_text(
        "set -eo pipefail\n" + "".join(_step(number, one, control) for number, one in enumerate(chosen))
    )
    with said.open("wb") as out:
        shell = subprocess.Popen(
            [*_alone(), "bash", str(script)],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            env=_environment(folder),
            start_new_session=True,
        )
    try:
        for number, block in enumerate(chosen):
            (control / f"go.{number}").touch()
            _wait((control / f"done.{number}").exists, shell, block, said)
            for line in block.promised:
                pattern = re.compile(".*".join(map(re.escape, line.strip().split("…"))))
                _wait(partial(_is_said, pattern, said), shell, block, said, line)
    finally:
        os.killpg(shell.pid, signal.SIGKILL)
        shell.wait()


def _step(number: int, block: Block, control: Path) -> str:
    return (
        f"until [ -e '{control}/go.{number}' ]; do sleep 0.05; done\n{block.commands}\n"
        f"touch '{control}/done.{number}'\n"
        + (f"until [ -e '{control}/go.{number + 1}' ]; do sleep 0.05; done\n")
    )


def _wait(
    condition: Callable[[], bool], shell: "subprocess.Popen[bytes]", block: Block, said: Path, line: str = ""
) -> None:
    until = time.monotonic() + SECONDS
    while not condition():
        promise = f"{line!r} was promised by" if line else "the shell stopped in"
        failure = f"{promise} the block\n{block.text}\nand this was said:\n{said.read_text(errors='replace')}"
        assert time.monotonic() < until, failure
        assert shell.poll() is None or condition(), failure
        time.sleep(0.05)


def _is_said(pattern: "re.Pattern[str]", said: Path) -> bool:
    return any(pattern.fullmatch(line.strip()) for line in said.read_text(errors="replace").splitlines())


def _alone() -> list[str]:
    """In a network of its own where the system allows it: the pages use the usual ports."""
    prefix = [
        "unshare",
        "--map-root-user",
        "--net",
        "--kill-child",
        "bash",
        "-c",
        'ip link set lo up && exec "$@"',
        "-",
    ]
    can = shutil.which("unshare") and shutil.which("ip") and subprocess.run(
        [*prefix, "true"], capture_output=True, check=False
    ).returncode == 0  # fmt: skip
    return prefix if can else []


def _environment(folder: Path) -> dict[str, str]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "HOME": str(folder), "COLUMNS": "110", "PYTHONUNBUFFERED": "1"}

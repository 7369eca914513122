"""The pictures of the documentation, from real runs: `python -m tools.pictures [SWEEP]` writes docs/images.

Needs Chromium and chromedriver. `SWEEP` is what `roamcast demo` wrote; without it the demo is run first.
"""

import sys
import tempfile
from pathlib import Path

from click.testing import CliRunner
from PIL import Image
from tests.pages.browser import Browser, missing

from roamcast.cli import app

ROOT = Path(__file__).parent.parent
IMAGES = ROOT / "docs" / "images"
COLOURS = 256


def main(arguments: list[str]) -> int:
    if lacking := missing():
        print(lacking, file=sys.stderr)
        return 2
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        sweep = Path(arguments[0]) if arguments else folder / "demo"
        if not arguments:
            call("demo", "--out", sweep)
        call("report", sweep, "--no-play", "--out", folder / "report.html")
        call(
            "simulate",
            ROOT / "examples" / "flooding-csma.toml",
            "--set",
            "scenario.duration=20",
            "--out",
            folder / "flood",
        )
        call("play", folder / "flood", "--out", folder / "flood.html")
        demo = ROOT / "src" / "roamcast" / "lab" / "sweep" / "demo.toml"
        call("simulate", demo, "--compare", "tree,opportunistic", "--out", folder / "two")
        call("play", folder / "two" / "tree", folder / "two" / "opportunistic", "--out", folder / "two.html")
        browser = Browser(1280, 860)
        try:
            take(browser, folder / "flood.html", "t=10.06&speed=0.1&event=43:19&node=6", "player")
            take(browser, folder / "two.html", "t=20.36&speed=0.1", "side-by-side")
            take(browser, folder / "report.html", "verdict", "report")
        finally:
            browser.close()
    return 0


def take(browser: Browser, page: Path, address: str, name: str) -> None:
    browser.open(f"{page.as_uri()}#{address}")
    browser.wait("document.documentElement.dataset.ready")
    browser.wait("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))")
    path = IMAGES / f"{name}.png"
    browser.picture(path)
    with Image.open(path) as taken:
        few = taken.convert("RGB").quantize(COLOURS, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
        few.save(path, optimize=True)
    print(path.relative_to(ROOT), path.stat().st_size)


def call(*arguments: str | Path) -> None:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if result.exit_code:
        raise SystemExit(result.output)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))

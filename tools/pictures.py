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
DEMO = ROOT / "src" / "roamcast" / "lab" / "sweep" / "demo.toml"
# A picture for the page of each protocol: the walkers of the demo, settings of its own, what the map shows.
SETTINGS = {
    "roles.publishers": "1",
    "roles.subscribers": "12",
    "scenario.duration": "25",
    "limit.events": "0",
}
MAPS = {
    "tree": ({}, "t=20.2"),
    "odmrp": ({}, "t=19.6&event=2:19"),
    "chapar": ({}, "t=20.2"),
    "opportunistic": ({"roles.brokers": "6"}, "t=24.9"),
    "epidemic": ({}, "t=19.6&event=2:19"),
    "flooding": ({}, "t=19.6&event=2:19"),
    "directed": ({"roles.subscribers": "[14, 19, 20]"}, "t=19.6&event=2:19"),
    "aodv": (
        {
            "strategy.name": "opportunistic",
            "strategy.options.dissemination": "overlay",
            "underlay.name": "aodv",
            "roles.brokers": "6",
            "roles.subscribers": "[14, 19, 20]",
        },
        "t=19.9&event=2:19",
    ),
}
# The moving one: an event of the walkers with `epidemic`, slowed down a hundred times.
MOVING = "event=2:19", 19.355, 0.0013, 30  # event, first instant, step in seconds, frames
MOVING_COLOURS = 32
FRAME_MS = 120


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
        for strategy, (settings, _) in MAPS.items():
            chosen = {"strategy.name": strategy, **SETTINGS, **settings}
            pairs = [text for key, value in chosen.items() for text in ("--set", f"{key}={value}")]
            call("simulate", DEMO, *pairs, "--out", folder / strategy)
            call("play", folder / strategy, "--out", folder / f"{strategy}.html")
        call("simulate", DEMO, "--compare", "tree,opportunistic", "--out", folder / "two")
        call("play", folder / "two" / "tree", folder / "two" / "opportunistic", "--out", folder / "two.html")
        browser = Browser(1280, 860)
        try:
            take(browser, folder / "flood.html", "t=10.06&speed=0.1&event=43:19&node=6", "player")
            take(browser, folder / "two.html", "t=20.36&speed=0.1", "side-by-side")
            take(browser, folder / "report.html", "verdict", "report")
            browser.size(1100, 900)
            for strategy, (_, address) in MAPS.items():
                take(
                    browser, folder / f"{strategy}.html", f"{address}&speed=0.1", f"map-{strategy}", "figure"
                )
            move(browser, folder / "epidemic.html")
        finally:
            browser.close()
    return 0


def take(browser: Browser, page: Path, address: str, name: str, part: str = "body") -> None:
    browser.open(f"{page.as_uri()}#{address}")
    browser.wait("document.documentElement.dataset.ready")
    path = IMAGES / f"{name}.png"
    few = shot(browser, path, part).quantize(COLOURS, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
    few.save(path, optimize=True)
    print(path.relative_to(ROOT), path.stat().st_size)


def move(browser: Browser, page: Path) -> None:
    event, first, step, count = MOVING
    browser.open(f"{page.as_uri()}#t={first}&{event}")
    browser.wait("document.documentElement.dataset.ready")
    path = IMAGES / "moving.gif"
    frames = []
    for number in range(count):
        browser.run(f"location.hash = 't={first + number * step:.4f}&speed=0.01&{event}'")
        taken = shot(browser, path.with_suffix(".png"), "figure")
        frames.append(taken.quantize(MOVING_COLOURS, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE))
    path.with_suffix(".png").unlink()
    pauses = [FRAME_MS] * (count - 1) + [3000]
    frames[0].save(path, save_all=True, append_images=frames[1:], duration=pauses, loop=0, optimize=True)
    print(path.relative_to(ROOT), path.stat().st_size)


def shot(browser: Browser, path: Path, part: str) -> Image.Image:
    """What the browser shows now, cut to the first element that `part` selects."""
    browser.wait("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))")
    browser.picture(path)
    box = browser.run(
        "const box = document.querySelector(arguments[0]).getBoundingClientRect();"
        "return [box.left, box.top, box.right, box.bottom]",
        part,
    )
    with Image.open(path) as taken:
        whole = taken.convert("RGB")
    return whole if part == "body" else whole.crop(tuple(round(side) for side in box))


def call(*arguments: str | Path) -> None:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if result.exit_code:
        raise SystemExit(result.output)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))

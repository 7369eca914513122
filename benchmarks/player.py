"""How long a page that plays takes to make, how large it is, and how smoothly it plays in a headless browser.

    python -m benchmarks.player [DIR …]      default: 100 s of examples/flooding-csma.toml

Goals: 5 s of processor time and 10 MB for the default, 30 pictures a second. Needs Chromium and chromedriver
for the last; a machine without a graphics processor draws with its own.
"""

import sys
import tempfile
import time
from pathlib import Path

from tests.pages.browser import Browser, missing

from roamcast.lab.play import play
from roamcast.lab.play.source import open_run
from roamcast.lab.run.runs import simulate
from roamcast.scenario import load_scenario

ROOT = Path(__file__).parent.parent
PLAYED = 5.0  # seconds


def main(folders: list[str]) -> None:
    with tempfile.TemporaryDirectory() as name:
        if not folders:
            example = Path(name) / "flooding-csma"
            simulate(load_scenario(ROOT / "examples" / "flooding-csma.toml")).write(example)
            folders = [str(example)]
        for number, folder in enumerate(folders):
            page = Path(name) / f"{number}.html"
            began = time.process_time()
            play([open_run(folder)], page)
            took = time.process_time() - began
            print(f"{Path(folder).name}: {took:.1f} s of processor time, {page.stat().st_size / 1e6:.2f} MB")
            if lacking := missing():
                print(f"  no frame rate: {lacking}")
            else:
                for address in ("t=10&speed=1&play=1", "t=10&speed=0.1&play=1"):
                    print(f"  {rate(page, address):.0f} pictures a second ({address})")


def rate(page: Path, address: str) -> float:
    """Pictures a second while it plays."""
    browser = Browser()
    try:
        browser.open(f"{page.as_uri()}#{address}")
        browser.wait("document.documentElement.dataset.ready")
        count = "return [roamcastPlayer.drawn, performance.now()]"
        drawn, began = browser.run(count)
        time.sleep(PLAYED)
        later, ended = browser.run(count)
        return float(1000 * (later - drawn) / (ended - began))
    finally:
        browser.close()


if __name__ == "__main__":
    main(sys.argv[1:])

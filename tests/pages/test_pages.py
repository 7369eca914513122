"""The player and the report in a real browser: what they show, and what they do when they are used.

One browser for all of it. Where there is none the tests are skipped, and say how to get one.
"""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner
from tests.lab.report.test_verdict import results
from tests.pages.browser import Browser, missing

from roamcast import pages
from roamcast.cli import app
from roamcast.lab.report.page import render

FOLDER = Path(pages.__file__).parent
SCENARIO = """
[scenario]
name = "<b onmouseover=alert(1)>crowd"
duration = 12.0
[world]
nodes = 15
area = [400.0, 300.0]
range = 130.0
[world.mobility]
model = "random_waypoint"
speed = [5.0, 9.0]
pause = [0.0, 1.0]
[world.radio]
model = "csma"
[roles]
publishers = 6
subscribers = "all"
[workload]
rate = 2.0
[strategy]
name = "flooding"
[[fault]]
at = 6.0
kind = "crash"
nodes = [3]
"""
STATE = "window.roamcastPlayer"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    if lacking := missing():
        pytest.skip(lacking)
    made = Browser()
    yield made
    made.close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs of one scenario, their page, and what `why` says of the first."""
    made = tmp_path_factory.mktemp("runs")
    (made / "crowd.toml").write_text(SCENARIO)
    call("simulate", made / "crowd.toml", "--compare", "flooding,tree", "--out", made / "out")
    call("play", made / "out" / "flooding", made / "out" / "tree", "--out", made / "two.html")
    call("play", made / "out" / "flooding", "--out", made / "one.html")
    return made


def call(*arguments: str | Path) -> str:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == 0, result.output
    return result.stdout


def shown(browser: Browser, page: Path, address: str = "") -> None:
    browser.open("about:blank")  # another address of the same page would not load it again
    browser.open(page.as_uri() + (f"#{address}" if address else ""))
    browser.wait("document.documentElement.dataset.ready")


@pytest.mark.realtime
def test_a_run_plays_seeks_and_stops(browser: Browser, folder: Path) -> None:
    shown(browser, folder / "one.html", "t=2&speed=1")
    drawn = browser.run(f"return {STATE}.drawn")
    browser.click("#play")
    browser.wait(f"{STATE}.drawn > {drawn + 5} && {STATE}.seconds > 2.05")
    browser.click("#play")
    stopped = browser.run(f"return {STATE}.seconds")
    assert browser.run(f"return [{STATE}.playing, {STATE}.seconds]") == [False, stopped]
    browser.run(f"{STATE}.seek(100)")
    assert browser.run(f"return {STATE}.seconds") == 12.0, "not beyond its end"
    browser.click("#previous")
    assert browser.run(f"return {STATE}.seconds") < 12.0
    assert browser.run(f"return {STATE}.event") == browser.run(
        "return document.querySelector('#list [aria-selected=true]').dataset.event"
    )
    pixels = (
        "const c = document.querySelector('#maps canvas'); const d = c.getContext('2d').getImageData(0, 0, "
    )
    pixels += (
        "c.width, c.height).data; let n = 0; for (let i = 3; i < d.length; i += 4) n += d[i] > 0; return n"
    )
    assert browser.run(pixels) > 1000, "there is a picture"
    assert not browser.log()


@pytest.mark.realtime
def test_an_event_has_the_way_and_the_reasons_of_why(browser: Browser, folder: Path) -> None:
    answer = json.loads(call("why", folder / "out" / "flooding", "--json"))
    lost = next(row for row in answer["missing"] if row["reason"] == "collision")
    event = lost["event"]
    told: dict[str, Any] = json.loads(call("why", folder / "out" / "flooding", "--event", event, "--json"))
    assert told["missing"] and told["ways"]
    page = Path(
        call("play", folder / "out" / "flooding", "--event", event, "--out", folder / "e.html").strip()
    )
    shown(browser, page)
    assert browser.run(f"return {STATE}.event") == event, "the page begins with it"
    rows = (
        "return [...document.querySelectorAll('#detail .%s tr')].map(r => [r.dataset.node, r.dataset.%s, %s])"
    )
    missed = browser.run(rows % ("missed", "reason", "r.innerText"))
    assert {int(node): reason for node, reason, _ in missed} == {
        m["node"]: m["reason"] for m in told["missing"]
    }
    by_node = {m["node"]: m for m in told["missing"]}
    for node, _, text in missed:
        assert by_node[int(node)]["detail"] in text and f"{by_node[int(node)]['t'] / 1e6:.6f} s" in text
    got = browser.run(rows % ("got", "path", "''"))
    assert {int(node): path for node, path, _ in got} == {
        way["node"]: " → ".join(map(str, way["path"])) for way in told["ways"]
    }
    browser.click(f'#detail .missed tr[data-node="{lost["node"]}"]')
    assert browser.run(f"return {STATE}.seconds") == pytest.approx(lost["t"] / 1e6), "the time of the loss"
    assert browser.run(f"return {STATE}.runs[0].head.labels[{STATE}.node]") == str(lost["node"])


@pytest.mark.realtime
def test_an_address_brings_another_viewer_to_the_same_instant(browser: Browser, folder: Path) -> None:
    shown(browser, folder / "two.html", "t=3")
    browser.click("#loss")
    browser.run("document.querySelector('#follow').click()")
    shared = browser.wait("location.hash.includes('event=') && location.hash.slice(1)")
    seen = browser.run(f"return [{STATE}.seconds, {STATE}.event, {STATE}.node, {STATE}.follow]")
    shown(browser, folder / "two.html", shared)
    assert browser.run(f"return [{STATE}.seconds, {STATE}.event, {STATE}.node, {STATE}.follow]") == seen
    assert seen[0] > 3 and seen[3] is True
    shown(browser, folder / "two.html", "t=NaN&event=<b>&node=77&speed=-1&x=%zz")
    assert browser.run(f"return [{STATE}.seconds, {STATE}.node]") == [0, -1], "nonsense is no error"
    assert not browser.log()


@pytest.mark.realtime
def test_two_runs_go_in_step_and_names_stay_text(browser: Browser, folder: Path) -> None:
    shown(browser, folder / "two.html", "t=5")
    captions = "return [...document.querySelectorAll('figcaption')].map(c => c.firstChild.textContent)"
    assert browser.run(captions) == ["flooding", "tree"]
    assert browser.run(f"return {STATE}.scenes.map(s => s.run.ticks({STATE}.seconds))") == [5e6, 5e6]
    overlay = f"let n = 0; {STATE}.runs[1].overlay.at(5e6, () => n++); return n"
    assert browser.run(overlay) > 3, "the tree has links"
    assert "<b onmouseover" in browser.run("return document.querySelector('h1').textContent")
    assert browser.run("return document.querySelectorAll('h1 b, #list b, img').length") == 0
    assert browser.run("return document.querySelectorAll('#list .row').length") < 60, "only what is in sight"
    covered = """return ['alice:1000', 'bergrettung-zurich-07-lead:1000'].map((name) => {
      const cells = [...document.querySelector('#list .row').children];
      cells[1].textContent = name;
      const boxes = cells.map((one) => one.getBoundingClientRect());
      const spills = (one) => one.scrollWidth > one.clientWidth
        && getComputedStyle(one).overflow !== 'hidden';
      return boxes.some((box, at) => at > 0 && spills(cells[at - 1])
        && box.left < boxes[at - 1].left + cells[at - 1].scrollWidth); })"""
    assert browser.run(covered) == [False, False], "a name covers no other column"
    assert not browser.log()


@pytest.mark.realtime
def test_a_browser_that_is_too_old_is_told(browser: Browser, folder: Path) -> None:
    late = "delete window.DecompressionStream"
    added = browser.developer("Page.addScriptToEvaluateOnNewDocument", source=late)
    try:
        browser.open(folder / "one.html")
        browser.wait("document.querySelector('#old').textContent.includes('It said')")
        assert "Firefox 113" in browser.run("return document.body.innerText")
    finally:
        browser.developer("Page.removeScriptToEvaluateOnNewDocument", identifier=added["identifier"])
    browser.log()


@pytest.mark.realtime
def test_a_report_draws_toggles_zooms_and_exports(browser: Browser, tmp_path: Path) -> None:
    cells = {
        ("flood", 0): ([0.80, 0.81, 0.82], 900.0),
        ("<i>tree", 0): ([0.70, 0.71, 0.73], 200.0),
        ("gossip", 0): ([0.95, 0.96, 0.97], 500.0),
        ("flood", 1): ([0.60, 0.61, 0.62], 900.0),
        ("<i>tree", 1): ([0.50, 0.51, 0.53], 200.0),
        ("gossip", 1): ([0.55, 0.56, 0.57], 500.0),
    }
    page = tmp_path / "report.html"
    page.write_text(render(results(cells)))
    browser.open(page)
    browser.wait("document.documentElement.dataset.ready")
    verdict = browser.run("return document.querySelector('.verdict').innerText")
    assert "gossip serves this scenario best" in verdict
    assert (
        browser.run("return document.querySelectorAll('.verdict svg:not(.mark) path[fill^=\"#\"]').length")
        == 3
    )
    drawn = "return document.querySelectorAll('[data-figure] > svg').length"
    assert browser.run(drawn) == browser.run("return roamcastReport.charts.length") > 3
    # Switched off once, a series is gone from every figure.
    browser.click(".verdict button[data-series=flood]")
    pressed = "return [...document.querySelectorAll('button[data-series=flood]')].map(b => b.ariaPressed)"
    assert set(browser.run(pressed)) == {"false"}
    assert (
        browser.run("return document.querySelectorAll('.verdict svg:not(.mark) path[fill^=\"#\"]').length")
        == 2
    )
    browser.click(".verdict button[data-series=flood]")
    # A point says what it is.
    hover = """const svg = document.querySelector('.verdict svg:not(.mark)');
        const box = svg.querySelector('path[fill^="#"]').getBoundingClientRect();
        const at = {clientX: box.x + box.width / 2, clientY: box.y + box.height / 2};
        svg.dispatchEvent(new PointerEvent('pointermove', at));
        return document.querySelector('.verdict .tip').textContent"""
    assert browser.run(hover).startswith("flood, 900: 0.71")
    zoomed = """const chart = roamcastReport.charts[0]; const box = chart.svg.getBoundingClientRect();
        const event = (kind, x, y) => chart.svg.dispatchEvent(new PointerEvent(kind,
            {clientX: box.x + x * box.width, clientY: box.y + y * box.height}));
        event('pointerdown', 0.2, 0.2); event('pointermove', 0.6, 0.6); event('pointerup', 0.6, 0.6);
        const zoomed = chart.zoom !== null; chart.svg.dispatchEvent(new MouseEvent('dblclick'));
        return [zoomed, chart.zoom]"""
    assert browser.run(zoomed) == [True, None]
    rows = browser.run("return roamcastReport.charts[0].asCsv()").splitlines()
    assert rows[0].startswith("series,octets sent per delivery,delivery_ratio") and len(rows) == 4
    svg = ElementTree.fromstring(browser.run("return roamcastReport.charts[0].asSvg()"))
    assert "<i>tree" in {element.text for element in svg.iter()}
    assert browser.run("return document.querySelectorAll('main i').length") == 0, "names stay text"
    assert not browser.log()


# The scripts themselves.


def test_modules_are_joined_once_and_before_their_users() -> None:
    script = pages.bundle("player.js")
    assert script.count("class MapView") == 1 and "import {" not in script
    assert script.index("class MapView") < script.index("class Scene") < script.index("class Player")


@pytest.mark.parametrize("entry", ["player.js", "report.js"])
def test_in_one_script_no_two_modules_use_a_name(entry: str) -> None:
    script = pages.bundle(entry)
    names = re.findall(r"^(?:export )?(?:class|function|const|async function) (\w+)", script, re.MULTILINE)
    assert len(names) == len(set(names))


def test_scripts_use_no_markup_and_nothing_from_elsewhere() -> None:
    for path in FOLDER.glob("*.js"):
        text = path.read_text()
        assert text.startswith("// @ts-check\n"), f"{path.name} is not checked"
        for word in (
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "eval(",
            "fetch(",
            "http:",
        ):
            assert word not in text, f"{path.name} has {word}"
        assert all(imported.startswith("./") for imported in re.findall(r'from "([^"]*)"', text))


def test_scripts_of_served_pages_make_no_markup_and_ask_only_their_own_server() -> None:
    scripts = sorted(FOLDER.joinpath("live").glob("*.js"))
    assert len(scripts) > 4
    for path in scripts:
        text = path.read_text()
        assert text.startswith("// @ts-check\n"), f"{path.name} is not checked"
        for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "http://"):
            assert word not in text, f"{path.name} has {word}"
        assert all(called.startswith('"/') for called in re.findall(r"fetch\(([^,]*),", text))
        assert all(re.match(r"\./|\.\./map\.js$", name) for name in re.findall(r'from "([^"]*)"', text))
    for path in FOLDER.joinpath("live").glob("*.html"):
        text = path.read_text()
        assert not re.search(r"<style|style=|<script(?! type=\"module\" src=\"/)| on[a-z]+=", text), path.name


def test_scripts_have_types_that_hold() -> None:
    compiler = shutil.which("tsc")
    if compiler is None:
        pytest.skip("no TypeScript compiler (npm install --global typescript)")
    ended = subprocess.run([compiler, "-p", str(FOLDER)], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout

"""The pictures of a node's page in the documentation, from two real nodes: `python -m tools.page_pictures`.

Needs Chromium and chromedriver; writes docs/images.
"""

import sys
import tempfile
from pathlib import Path

from tests.pages.browser import Browser, missing
from tests.pages.test_node_page import PASSWORD, Pair, submit, until, user_property

IMAGES = Path(__file__).parent.parent / "docs" / "images"
PEOPLE = {"alice": "47.3769, 8.5417", "bob": "47.3775, 8.5432", "medic": "47.3761, 8.5440"}


def main() -> int:
    if lacking := missing():
        print(lacking, file=sys.stderr)
        return 2
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        browser, pair = Browser(1280, 900), Pair(Path(name))
        try:
            fill(browser, pair)
            browser.picture(IMAGES / "node-page.png")
            browser.click("#details")
            until(browser, "position/medic", "#stored")
            until(browser, "position/medic", "#passing")
            engineer = {"width": 1280, "height": 1900, "deviceScaleFactor": 1, "mobile": False}
            browser.developer("Emulation.setDeviceMetricsOverride", **engineer)
            browser.wait("innerWidth === 1280 && innerHeight === 1900")
            browser.picture(IMAGES / "node-page-engineer.png")
            browser.click("#details")
            screen = {"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": True}
            browser.developer("Emulation.setDeviceMetricsOverride", **screen)
            browser.wait("innerWidth === 390")
            browser.wait(
                "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))"
            )
            browser.picture(IMAGES / "node-page-phone.png")
        finally:
            browser.close()
            pair.close()
    return 0


def fill(browser: Browser, pair: Pair) -> None:
    browser.open(pair.alice.page)
    browser.wait("document.getElementById('login').open")
    submit(browser, "login-form", login_name="ada", login_password=PASSWORD)
    until(browser, "connected", "#state")
    until(browser, "hears bob", "#about")
    for wanted in ("alarm/#", "sensor/+/value?level>3"):
        submit(browser, "subscribe-form", subscribe_filter=wanted)
        until(browser, wanted, "#filters")
    level = user_property("level", "5")
    until(
        browser,
        "sensor/7",
        "#feed",
        lambda: pair.paho.publish("sensor/7/value", b"26.1", 1, properties=level),
    )
    submit(browser, "publish-form", publish_topic="alarm/fire", publish_payload="third floor, east wing")
    until(browser, "alarm/fire", "#feed")
    for at, (name, place) in enumerate(PEOPLE.items(), 1):
        submit(browser, "position-form", position_name=name, position_place=place)
        until(browser, f"{at} position", "#map-note")


if __name__ == "__main__":
    raise SystemExit(main())

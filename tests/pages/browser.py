"""A real browser for tests of pages: headless Chromium, driven by chromedriver over WebDriver.

WebDriver is JSON over HTTP; the few commands that tests need are here, so that no package is. One browser
serves all tests of a process.
"""

import base64
import json
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

NEEDED = ("chromium", "chromium-browser", "google-chrome")
STARTED_WITHIN = 60.0  # seconds; a busy machine takes ten
ELEMENT = "element-6066-11e4-a52e-4f735466cecf"  # the key of an element's name, by the WebDriver standard


def missing() -> str | None:
    """What this machine lacks for browser tests; None if it has all."""
    if shutil.which("chromedriver") is None:
        return "no chromedriver (Debian: apt install chromium chromium-driver)"
    if not any(shutil.which(name) for name in NEEDED):
        return "no Chromium (Debian: apt install chromium chromium-driver)"
    return None


class BrowserError(Exception):
    """What the browser answered instead."""


class Browser:
    def __init__(self, width: int = 1280, height: int = 800, dark: bool = False) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self._base = f"http://127.0.0.1:{port}"
        command = ["chromedriver", f"--port={port}", "--log-level=SEVERE"]
        self._driver = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        binary = next(found for name in NEEDED if (found := shutil.which(name)))
        arguments = ["--headless=new", "--no-sandbox", "--disable-gpu", f"--window-size={width},{height}"]
        arguments += ["--hide-scrollbars", "--disable-dev-shm-usage", "--no-first-run"]
        arguments += ["--force-dark-mode"] if dark else []
        options = {"binary": binary, "args": arguments}
        wanted = {"alwaysMatch": {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}}
        try:
            self._wait_for_driver()
            self._session = self._call("POST", "/session", {"capabilities": wanted})["sessionId"]
        except BaseException:
            self._driver.kill()
            self._driver.wait()
            raise

    def close(self) -> None:
        try:
            self._command("DELETE", "")
        finally:
            self._driver.terminate()
            self._driver.wait(STARTED_WITHIN)

    def open(self, page: Path | str) -> None:
        self._command("POST", "/url", {"url": page.absolute().as_uri() if isinstance(page, Path) else page})

    def run(self, script: str, *arguments: Any) -> Any:
        """The value of a JavaScript function's body; `arguments` are its arguments."""
        return self._command("POST", "/execute/sync", {"script": script, "args": list(arguments)})

    def wait(self, condition: str, seconds: float = 60.0) -> Any:
        """Until the JavaScript expression is true; its value."""
        until = time.monotonic() + seconds
        while True:
            value = self.run(f"return {condition}")
            if value or time.monotonic() > until:
                assert value, f"never true: {condition}; the page said {self.log()}"
                return value
            time.sleep(0.02)

    def click(self, selector: str) -> None:
        found = self._command("POST", "/element", {"using": "css selector", "value": selector})
        self._command("POST", f"/element/{found[ELEMENT]}/click", {})

    def size(self, width: int, height: int) -> None:
        self._command("POST", "/window/rect", {"width": width, "height": height})

    def picture(self, path: Path) -> None:
        path.write_bytes(base64.b64decode(self._command("GET", "/screenshot")))

    def log(self) -> list[str]:
        """What the page wrote to its console since it was asked last."""
        entries = self._command("POST", "/se/log", {"type": "browser"})
        return [f"{entry['level']}: {entry['message']}" for entry in entries]

    def developer(self, command: str, **parameters: Any) -> Any:
        """A command of the DevTools protocol."""
        return self._command("POST", "/goog/cdp/execute", {"cmd": command, "params": parameters})

    def _command(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        return self._call(method, f"/session/{self._session}{path}", body)

    def _call(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._base + path, data, method=method)
        request.add_header("Content-Type", "application/json")
        try:
            with urllib.request.urlopen(request, timeout=120) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            with error:
                raise BrowserError(json.load(error)["value"].get("message", "")) from None

    def _wait_for_driver(self) -> None:
        until = time.monotonic() + STARTED_WITHIN
        while True:
            try:
                if self._call("GET", "/status")["ready"]:
                    return
            except OSError:
                if time.monotonic() > until or self._driver.poll() is not None:
                    raise
            time.sleep(0.05)

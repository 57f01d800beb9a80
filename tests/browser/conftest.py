"""A real browser for tests marked `browser` (reports) and `site` (the site and its playground).

They run only when asked for: `make browser` and `make site-test`, or `pytest -m browser`, `pytest -m site`.
"""

from __future__ import annotations

import base64
import functools
import http.server
import json
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weftc

CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
SWITCHES = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves these tests out unless the marker is asked for."""
    if any(marker in (config.getoption("-m") or "") for marker in ("browser", "site")):
        return
    here = Path(__file__).parent
    mine = [item for item in items if here in Path(item.path).parents]
    if mine:
        config.hook.pytest_deselected(items=mine)
        items[:] = [item for item in items if item not in mine]


class Browser:
    """A tab: opens pages, answers questions in JavaScript, and remembers requests and complaints."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver

    def command(self, name: str, **options: Any) -> Any:
        return self.driver.execute_cdp_cmd(name, options)

    def open(self, page: Path | str, width: int = 1280, dark: bool = False) -> None:
        """Opens a file or an address in a window of this width; the log starts empty."""
        self.command("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.command("Emulation.setEmulatedMedia", media="", features=[scheme])
        self.driver.get("about:blank")
        self.driver.get_log("browser")
        self.driver.get_log("performance")
        self.driver.get(page if isinstance(page, str) else page.as_uri())

    def await_(self, script: str, *arguments: Any) -> Any:
        """What a promise comes to: `script` is an expression of `arguments`."""
        wrapped = f"const done = arguments[arguments.length - 1]; ({script}).then(done, (e) => done(String(e)))"
        return self.driver.execute_async_script(wrapped, *arguments)

    def until(self, script: str, seconds: float = 60) -> Any:
        """The first answer to a question that is neither null, false nor empty."""
        end = time.monotonic() + seconds
        while not (found := self.ask(script)):
            assert time.monotonic() < end, f"still not: {script}"
            time.sleep(0.05)
        return found

    def ask(self, script: str, *arguments: Any) -> Any:
        return self.driver.execute_script(script, *arguments)

    def find(self, selector: str) -> Any:
        return self.driver.find_element("css selector", selector)

    def keys(self, *names: str) -> None:
        """Presses keys on whatever has the focus."""
        from selenium.webdriver.common.action_chains import ActionChains
        from selenium.webdriver.common.keys import Keys

        chain = ActionChains(self.driver)
        for name in names:
            chain.send_keys(getattr(Keys, name))
        chain.perform()

    def point_at(self, selector: str) -> None:
        """Moves the pointer over an element."""
        from selenium.webdriver.common.action_chains import ActionChains

        target = self.find(selector)
        self.ask("arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", target)
        ActionChains(self.driver).move_to_element(target).perform()

    def complaints(self) -> list[str]:
        """What the console said."""
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def requests(self) -> tuple[list[str], list[str]]:
        """Every address that was asked for, and the reasons for which some were not loaded."""
        events = [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]
        asked = [e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"]
        failed = [e["params"].get("blockedReason", "") for e in events if e["method"] == "Network.loadingFailed"]
        return asked, failed

    def overflow(self) -> int:
        """By how many pixels the page is wider than the window."""
        return int(self.ask("return document.documentElement.scrollWidth - document.documentElement.clientWidth"))

    def picture(self, path: Path) -> None:
        """A picture of the whole page."""
        wide, high = self.ask("return [innerWidth, document.documentElement.scrollHeight]")
        clip = {"x": 0, "y": 0, "width": wide, "height": high, "scale": 1}
        taken = self.command("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)
        path.write_bytes(base64.b64decode(taken["data"]))


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    from selenium import webdriver
    from selenium.webdriver.chrome.options import Options
    from selenium.webdriver.chrome.service import Service

    binary = next((found for name in CHROMIUM if (found := shutil.which(name))), None)
    driver = shutil.which("chromedriver")
    assert binary, f"no browser: none of {', '.join(CHROMIUM)} is installed (make browser installs one where it can)"
    assert driver, "chromedriver is not installed (make browser installs it where it can)"
    options = Options()
    options.binary_location = binary
    for switch in (*SWITCHES, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(switch)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    made = webdriver.Chrome(options=options, service=Service(driver))
    try:
        yield Browser(made)
    finally:
        made.quit()


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Serves files and writes no log."""

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture(scope="session")
def serve() -> Iterator[Callable[[Path], str]]:
    """Folder -> the address it is served at, on this machine."""
    servers = []

    def start(folder: Path) -> str:
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder)))
        threading.Thread(target=server.serve_forever, daemon=True).start()
        servers.append(server)
        return f"http://127.0.0.1:{server.server_port}/"

    yield start
    for server in servers:
        server.shutdown()


@pytest.fixture(scope="session")
def report(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Reports by name, each made once."""
    folder, made = tmp_path_factory.mktemp("reports"), dict[str, Path]()
    points = np.loadtxt(Path(weftc.__file__).parents[2] / "examples" / "points.csv", delimiter=",", skiprows=1)

    def find(spec: str) -> Path:
        if spec not in made:
            checked = weftc.check(spec)
            fields = [checked.fields[one.target.name] for one in checked.spec.inputs if one.init is None]
            some = points if spec == "lloyd" else points[::5] / 3
            given = {
                one.name: some if one.width is not None else (some[:, 0] - some[:, 0].min() + 0.5) / 6 for one in fields
            }
            dims = {size: 5 for size in checked.sets.values() if isinstance(size, str)}
            path = folder / f"{spec}.html"
            made[spec] = weftc.report(checked, given, path, dims=dims, layers=6, verify=spec == "lloyd", cases=2)
        return made[spec]

    return find

"""Takes the pictures of the dashboard in `docs/img/` from a demo that runs: `make screenshots`.

    python -m tools.screenshots

Needs chromium (`apt-get install chromium`). The pictures are light, at the width of a small laptop, and small enough
for a repository: one that is larger than it may be ends the program.
"""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import httpx
from playwright.sync_api import Browser, sync_playwright

__all__ = ["main"]

_DIRECTORY = Path(__file__).parents[1] / "docs" / "img"
_MOST_BYTES = 200_000
_START_S = 600.0
_FLOWING_S = 150.0  # so that sparklines have a shape
_WIDTH, _MOST_HEIGHT = 1200, 1150
_PAGES = {
    "dashboard.png": "/",
    "dashboard-pipeline.png": "/dashboard/pipelines/orders",
    "dashboard-events.png": "/dashboard/events?destination=changes",
    "dashboard-topic.png": "/dashboard/gateway/topic?name=cdc.shop.orders.insert",
}


def main() -> None:
    """Start a demo, let it run for a while, take the pictures, and end it."""
    chromium = shutil.which("chromium") or sys.exit("there is no browser: apt-get install chromium")
    with tempfile.TemporaryDirectory(prefix="headgate-pictures-") as directory:
        log = Path(directory) / "log"
        command = [sys.executable, "-m", "headgate", "demo", "--data-dir", f"{directory}/data"]
        with log.open("wb") as file, subprocess.Popen(command, stderr=file, stdout=file) as demo:
            try:
                url = _flowing(demo, log)
                with sync_playwright() as playwright:
                    browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
                    for name, path in _PAGES.items():
                        _take(browser, url + path, _DIRECTORY / name)
                    browser.close()
            finally:
                demo.send_signal(signal.SIGINT)


def _flowing(demo: subprocess.Popen[bytes], log: Path) -> str:
    """Where the dashboard is, once every pipeline has delivered for a while."""
    deadline = time.monotonic() + _START_S
    while time.monotonic() < deadline and demo.poll() is None:
        found = re.search(r"dashboard: (\S+)", log.read_text())
        if found and _delivers(found[1]):
            time.sleep(_FLOWING_S)
            return found[1]
        time.sleep(1)
    sys.exit(f"the demo does not flow:\n{log.read_text()[-2000:]}")


def _delivers(url: str) -> bool:
    pipelines = httpx.get(f"{url}/status", timeout=30).json()["pipelines"]
    return bool(pipelines) and all(each["rows_total"] for each in pipelines)


def _take(browser: Browser, url: str, path: Path) -> None:
    page = browser.new_page(viewport={"width": _WIDTH, "height": 800}, color_scheme="light", reduced_motion="reduce")
    page.goto(url)
    page.wait_for_function("() => Number(document.body.dataset.updates || 0) > 0")
    if page.locator(".messages summary").count():
        page.get_by_role("button", name="Hold").click()
        page.locator(".messages summary").nth(2).click()
    height = page.evaluate("document.querySelector('main').getBoundingClientRect().bottom")
    page.screenshot(
        path=path, full_page=True, clip={"x": 0, "y": 0, "width": _WIDTH, "height": min(height, _MOST_HEIGHT)}
    )
    page.close()
    if path.stat().st_size > _MOST_BYTES:
        sys.exit(f"{path} has {path.stat().st_size:,} bytes, more than {_MOST_BYTES:,}")


if __name__ == "__main__":
    main()

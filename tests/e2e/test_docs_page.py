"""The OpenAPI page in a real browser: it renders, and nothing is asked of any other host."""

import shutil
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tools.deployment import Deployment

CHROMIUM = shutil.which("chromium")
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update",
]  # fmt: skip


@pytest.mark.skipif(CHROMIUM is None, reason="NO CHROMIUM: apt-get install chromium to test the API page in a browser")
def test_docs_render_without_the_internet(deployment: Deployment, tmp_path: Path) -> None:
    api = pytest.importorskip("playwright.sync_api")
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        page = browser.new_page(viewport={"width": 1280, "height": 1600})
        asked: list[str] = []
        complaints: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(f"{deployment.url}/docs", timeout=90_000)  # it compiles a megabyte of script
        page.get_by_text("Create Federation").first.wait_for(timeout=30_000)
        page.get_by_text("Create Federation").first.click()
        page.get_by_text("join_token").first.wait_for(timeout=30_000)
        page.get_by_text("Healthz").first.click()
        page.get_by_role("button", name="Execute").last.click()
        page.get_by_text('"status": "ok"').first.wait_for(timeout=30_000)
        page.screenshot(path=str(tmp_path / "docs.png"))
        browser.close()
    hosts = {urlsplit(url).netloc for url in asked if urlsplit(url).scheme in ("http", "https")}
    assert hosts == {urlsplit(deployment.url).netloc}
    assert not complaints

"""The page of the API in a real browser: every call opens and can be tried, nothing is asked of any other host."""

import json
import shutil
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tools.deployment import Deployment

from .accessible import violations

CHROMIUM = shutil.which("chromium")
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update",
]  # fmt: skip


@pytest.mark.skipif(CHROMIUM is None, reason="NO CHROMIUM: apt-get install chromium to test the API page in a browser")
def test_the_api_is_told_and_tried_without_the_internet(deployment: Deployment, tmp_path: Path) -> None:
    api = pytest.importorskip("playwright.sync_api")
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        page = browser.new_page(viewport={"width": 1280, "height": 1600})
        asked: list[str] = []
        complaints: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(f"{deployment.url}/docs#create_federation")
        create = page.locator("#create_federation")
        create.get_by_role("heading", name="Answers").wait_for()  # the address opened it
        create.get_by_text("Fields of rounds", exact=True).first.click()
        create.get_by_text("deadline_seconds", exact=True).first.wait_for()
        create.get_by_label("Example").select_option("distillation on data of the server")
        sent = json.loads(create.get_by_label("Body").input_value())
        assert sent["recipe"] == {"name": "feddf"}
        sent |= {"recipe": {"name": "fedavg"}, "datasets": {}, "name": "made in 'the docs'"}
        create.get_by_label("Body").fill(json.dumps(sent))
        assert "'\\''the docs'\\''" in create.locator(".command code").inner_text()
        create.get_by_role("button", name="Send").click()
        create.get_by_text("401 Unauthorized").wait_for()
        complaints.clear()  # asked for without a token, on purpose
        page.get_by_label("Token for what is tried here").fill(deployment.token)
        create.get_by_role("button", name="Send").click()
        create.locator(".answer", has_text="join_token").wait_for()
        assert [each.name for each in deployment.operator.federations().items] == ["made in 'the docs'"]

        page.get_by_label("Find a call").fill("/v1/federations/{federation_id} ")
        page.locator("#show_federation summary").first.click()
        page.locator("#show_federation").get_by_label("federation_id").fill("fed_0")
        page.locator("#show_federation").get_by_role("button", name="Send").click()
        page.locator("#show_federation").get_by_text("404 Not Found").wait_for()
        complaints.clear()
        page.get_by_label("Find a call").fill("no such call")
        page.get_by_text("No call has “no such call”").wait_for()
        page.get_by_label("Find a call").fill("")
        for place in page.locator("details.operation:not([open]) > summary").all()[:6]:
            place.click()
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            for width in (390, 1440):
                page.set_viewport_size({"width": width, "height": 900})
                assert page.evaluate("document.documentElement.scrollWidth") <= width
                assert violations(page) == [], (scheme, width)
                page.screenshot(path=str(tmp_path / f"docs-{scheme}-{width}.png"))
        told = page.evaluate("document.querySelectorAll('details.operation').length")
        page.evaluate("document.querySelectorAll('details.operation').forEach((each) => (each.open = true))")
        page.wait_for_function(f"document.querySelectorAll('.trial').length === {told}")
        browser.close()
    hosts = {urlsplit(url).netloc for url in asked if urlsplit(url).scheme in ("http", "https")}
    assert hosts == {urlsplit(deployment.url).netloc}
    assert not complaints

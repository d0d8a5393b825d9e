"""What the page shows where there is nothing yet, much, no answer, or no right to act."""

import re
from typing import Any

from contract.wire.federations import FederationCreate
from tools.deployment import Deployment

from .test_dashboard import Screen, browser, pytestmark, request, service

__all__ = ["browser", "pytestmark", "service"]


def test_a_long_list_comes_in_parts(service: Deployment, browser: Any) -> None:
    body = request("one of many").model_dump(mode="json", exclude_unset=True) | {"datasets": {}}
    service.operator.create_federation(FederationCreate.model_validate(body))
    one = service.operator.federations(limit=1, newest_first=True).items[0].model_dump(mode="json")
    screen = Screen(browser, service.url)

    def many(route: Any) -> None:
        first = "after=" not in route.request.url
        numbers = range(250, 150, -1) if first else range(150, 140, -1)
        items = [one | {"id": f"fed_{at:03}", "name": f"made {at:03}"} for at in numbers]
        route.fulfill(json={"items": items, "next": "fed_151" if first else None})

    screen.page.route(re.compile("/v1/federations[?]newest_first=true"), many)
    page = screen.sign_in(service.token)
    rows = page.locator(".federations tbody tr")
    rows.nth(99).wait_for()
    assert (rows.first.locator(".name").inner_text(), rows.count()) == ("made 250", 100)
    page.get_by_text("100 are shown").wait_for()
    page.get_by_role("button", name="Show more").click()
    rows.nth(109).wait_for()
    assert rows.last.locator(".name").inner_text() == "made 141"
    page.get_by_role("button", name="Show more").wait_for(state="hidden")
    screen.close()


def test_a_viewer_is_told_so_and_a_page_that_fails_says_why_and_goes_on(service: Deployment, browser: Any) -> None:
    viewer = service.operator.create_token("looks on").token
    screen = Screen(browser, service.url)
    screen.page.route(re.compile("/v1/federations[?]"), lambda route: route.fulfill(json={"items": [], "next": None}))
    page = screen.sign_in(viewer)
    page.get_by_text("An operator makes one; a viewer's token looks, and changes nothing.").wait_for()
    screen.accessible()
    assert page.get_by_role("button", name="Start").count() == 0

    problem = {
        "type": "urn:potstill:problem:unavailable",
        "title": "Unavailable",
        "detail": "the disk is gone",
        "status": 503,
    }
    broken = re.compile("/v1/workers")
    page.route(broken, lambda route: route.fulfill(status=503, json=problem))
    page.get_by_text("The service answers with an error, so what you see may be old: the disk is gone").wait_for(
        timeout=20_000
    )
    page.locator(".health").wait_for()  # what is known stays
    page.reload()
    page.get_by_role("heading", name="This page cannot be shown now").wait_for()
    page.get_by_text("Unavailable: the disk is gone").wait_for()
    screen.accessible()
    page.unroute(broken)
    page.get_by_role("button", name="Try again now").click()
    page.locator(".health").wait_for()
    assert page.locator("#lost").is_hidden()
    page.goto(f"{service.url}#/federations/fed_0")
    page.get_by_role("heading", name="There is no such page").wait_for()
    screen.accessible()
    page.get_by_role("link", name="All federations").click()
    page.locator(".health").wait_for()
    page.get_by_role("button", name="Sign out").click()
    page.get_by_label("Operator or viewer token").wait_for()
    screen.accessible()
    screen.complaints[:] = [line for line in screen.complaints if "503" not in line and "404" not in line]  # asked for
    screen.close()

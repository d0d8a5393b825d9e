"""The page that compares, in a real browser: curves, differences, a table as a file, by the command line's rules."""

import csv
import json
import re
from pathlib import Path
from typing import Any

from contract.wire.federations import FederationCreate
from contract.wire.report import FederationReport
from potstill.comparing import tables
from potstill.comparing.sides import sides_of
from tools.deployment import Deployment

from .test_dashboard import HOSTILE, Screen, browser, pytestmark, request, service

__all__ = ["browser", "pytestmark", "service"]


def rounds(values: list[float | None], bytes_: int, took: float, clock: bool) -> list[dict[str, Any]]:
    """Return the costs of rounds, the n-th of which was over n times `took` seconds after the first began."""
    return [
        {
            "round": at,
            "state": "published",
            "accuracy": value,
            "devices": 2,
            "answered": 2,
            "clock": at * took if clock else None,
            "files": {"down": bytes_, "up": bytes_ // 2},
            "seconds": {"devices": took / 2, "jobs": took / 4},
            "flops": {"training": 10**9, "distillation": 10**8},
        }
        for at, value in enumerate(values, start=1)
    ]


def told(report: dict[str, Any], values: list[float | None], bytes_: int, took: float) -> dict[str, Any]:
    """Return a report as it is after these rounds."""
    found = rounds(values, bytes_, took, clock=bool(report["federation_id"]))
    total = {"files": {"down": bytes_ * len(found), "up": bytes_ // 2 * len(found)}, "flops": {"training": 10**9}}
    return FederationReport.model_validate(report | {"first": 0.1, "rounds": found, "total": total}).model_dump(
        mode="json"
    )


def answer(route: Any, answers: dict[str, Any]) -> None:
    """Answer a federation's report; the service itself says what it does not know."""
    found = answers.get(route.request.url.split("/")[-2])
    route.continue_() if found is None else route.fulfill(json=found)


def same(cell: str) -> Any:
    """Return a cell as what it says: 1.0 is 1, and spaces in JSON are none."""
    try:
        return json.loads(cell)
    except ValueError:
        return cell


def test_two_federations_and_a_simulation(service: Deployment, browser: Any, tmp_path: Path) -> None:
    body = request("plain").model_dump(mode="json", exclude_unset=True) | {"datasets": {}}
    other = body | {"name": "longer, with proximity", "recipe": {"name": "fedprox"}, "local": {"epochs": 9}}
    made = [service.operator.create_federation(FederationCreate.model_validate(each)) for each in (body, other)]
    plain, longer = (service.operator.report(each.id).model_dump(mode="json") for each in made)
    plain = told(plain, [0.31, 0.52, None, 0.7], 2_000_000, 40.0)
    longer = told(longer, [0.4, 0.66, 0.78, 0.83], 2_500_000, 95.0)
    simulated = told(plain | {"federation_id": "", "name": HOSTILE}, [0.2, 0.6], 1_000_000, 3.0)
    (tmp_path / "report.json").write_text(json.dumps(simulated))
    (tmp_path / "table.json").write_text("[]")

    screen = Screen(browser, service.url, color_scheme="dark")
    answers = {each["federation_id"]: each for each in (plain, longer)}
    screen.page.route(
        re.compile("/v1/federations/[^/]+/report$"),
        lambda route: answer(route, answers),
    )
    page = screen.sign_in(service.token)
    page.get_by_label("compare plain").wait_for()
    assert page.get_by_role("button", name="Compare").is_disabled()
    page.get_by_label("compare longer").check()
    page.get_by_label("compare plain").check()
    page.screenshot(path=str(tmp_path / "overview.png"))
    page.get_by_role("button", name="Compare").click()
    page.locator(".compared .chart").nth(2).wait_for()
    assert page.locator(".compared h4").all_inner_texts() == ["over rounds", "over bytes", "over seconds"]
    page.locator(".compared .chart").last.focus()
    page.keyboard.press("End")
    page.locator(".compared .tip", has_text="6 min 20 s: longer, with proximity 83.0 %, plain 70.0 %").wait_for()
    page.locator(".compared summary").click()
    table = page.get_by_role("table", name="curves as a table").get_by_role("row")
    assert (table.nth(1).inner_text().split("\t")[:2], table.count()) == (["longer, with proximity", "4"], 10)
    parts = {each.split("\t")[0]: each.split("\t")[1:] for each in page.locator(".unlike tbody tr").all_inner_texts()}
    assert parts["local.epochs"] == ["9", "5"] and parts["recipe.name"] == ["fedprox", "fedavg"]
    assert "task.num_classes" not in parts

    page.get_by_label("Add files").set_input_files([tmp_path / "table.json", tmp_path / "report.json"])
    page.get_by_text("table.json is no report").wait_for()
    page.locator(".figures tbody tr", has_text=HOSTILE).first.wait_for()
    assert page.locator("main img").count() == 0
    with page.expect_download() as caught:
        page.get_by_role("button", name="Download as CSV").click()
    caught.value.save_as(tmp_path / "compared.csv")
    reports = [FederationReport.model_validate(each) for each in (longer, plain, simulated)]
    ours = tables.as_csv(tables.compare(sides_of(reports)))
    with (tmp_path / "compared.csv").open(newline="") as file:
        found = [[same(cell) for cell in line] for line in csv.reader(file)]
    assert found == [[same(cell) for cell in line] for line in csv.reader(ours.splitlines())]

    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        for width in (390, 1440):
            page.set_viewport_size({"width": width, "height": 900})
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            page.evaluate("scrollTo(0, 0)")
            page.screenshot(path=str(tmp_path / f"compare-{scheme}-{width}.png"), full_page=True)
    screen.accessible()
    page.locator(".figures table").first.locator("tr", has_text=HOSTILE).get_by_role("button", name="Remove").click()
    page.locator(".figures table").first.locator("tr", has_text="plain").get_by_role("button", name="Remove").click()
    page.locator(".unlike").wait_for(state="hidden")
    assert page.url.endswith(f"#/compare?of={made[1].id}"), "what is compared is in the address"
    page.goto(f"{page.url}&of=fed_{'0' * 23}")
    page.get_by_text("Not there, or not any more: fed_0").wait_for()
    page.locator(".figures tr", has_text="longer").first.wait_for()
    screen.complaints[:] = [line for line in screen.complaints if "404" not in line]  # asked for on purpose
    page.get_by_role("link", name="on the first page").click()
    page.get_by_label("compare plain").wait_for()
    assert [page.get_by_label(f"compare {name}").is_checked() for name in ("plain", "longer")] == [False, True]
    screen.close()

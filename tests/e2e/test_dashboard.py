"""The operators' page in a real browser: live, hostile names as text, actions, nothing from outside."""

import json
import re
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from client_sdk import Client
from client_sdk.errors import ApiError
from contract.tensors import TensorFile, write_file
from contract.wire.changes import PlanChange
from contract.wire.devices import Enrolment
from contract.wire.federations import FederationCreate
from tools.deployment import CLASSES, SHAPE, Deployment, add_server_data, running, wait_for

from .accessible import violations
from .test_docs_page import CHROMIUM, FLAGS

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="NO CHROMIUM: apt-get install chromium to test the dashboard")
HOSTILE = "<img src=x onerror=alert(1)>"
ODD = "&lt;b&gt; \" onmouseover=alert(1) {{7*7}} 'x"  # what the API takes as a name


class Hand:
    """A device that sends back what it got, moved a little: no torch, no training."""

    def __init__(self, deployment: Deployment, federation: str, join_token: str, name: str):
        self.client = Client(deployment.url, http_client=deployment.operator._transport._http)
        enrolment = Enrolment(name=name, num_samples=10)
        self.id = self.client.enrol(federation, enrolment, join_token=join_token).client_id
        self.folder = deployment.home / "hands"
        self.folder.mkdir(exist_ok=True)

    def train(self, bad: str | None = None) -> str:
        """Answer the round that asks; return its id."""
        got = wait_for(lambda: self._assigned(), why="no round asks")
        path = self.folder / f"{self.id}.safetensors"
        self.client.download(got.model, path)
        with TensorFile(path) as file:
            arrays = {name: file.read(name) for name in file.names}
        if bad:
            arrays[bad] = next(iter(arrays.values()))
        metadata = {"num_samples": "10", "base_model": got.model.id, "metrics": json.dumps({"loss": 0.25})}
        write_file(path, arrays, metadata)
        self.client.push_update(got.round.id, path)
        return str(got.round.id)

    def _assigned(self) -> Any:
        assignment = self.client.assignment(wait=1)
        return assignment if assignment.action == "train" else None


def hold(page: Any) -> Any:
    """Focus a button, open what can be opened, scroll, select a text; return how it stands, as `held()` says again."""
    return page.evaluate("""() => {
        const button = document.querySelector(".clients tbody button"), list = document.querySelector(".stream");
        const details = [...document.querySelectorAll("details")], text = document.querySelector("h1").firstChild;
        details.forEach((each) => (each.open = true));
        button.focus({ preventScroll: true });
        scrollTo(0, 150);
        list.style.maxHeight = "4rem";
        list.scrollTop = 20;
        getSelection().setBaseAndExtent(text, 1, text, 4);
        window.held = () => [
            document.activeElement === button, details.length, details.every((each) => each.isConnected && each.open),
            scrollY, list.scrollTop > 0, getSelection().toString(),
        ];
        return held();
    }""")


def request(name: str, **rounds: Any) -> FederationCreate:
    return FederationCreate.model_validate(
        {
            "name": name,
            "task": {"num_classes": CLASSES, "input": {"shape": SHAPE}},
            "prototypes": [{"name": "main", "architecture": "cnn-digits"}],
            "recipe": {"name": "fedavg"},
            "rounds": {"total": 2, "min_clients": 2, "min_updates": 2, **rounds},
            "datasets": {"test": "test"},
        }
    )


class Screen:
    """A page and everything that it complained of or asked for."""

    def __init__(self, browser: Any, url: str, **options: Any):
        self.context = browser.new_context(viewport={"width": 1280, "height": 1000}, **options)
        self.page = self.context.new_page()
        self.url, self.asked, self.complaints = url, list[str](), list[str]()
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.on("console", self._console)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("dialog", self._dialog)

    def _dialog(self, dialog: Any) -> None:
        self.complaints.append(f"dialog {dialog.message}")
        dialog.dismiss()

    def _console(self, message: Any) -> None:
        self.complaints.append(message.text)  # of whatever kind: a page has nothing to say there

    def sign_in(self, token: str) -> Any:
        self.page.goto(self.url)
        self.page.get_by_label("Operator or viewer token").fill(token)
        self.page.get_by_role("button", name="Sign in").click()
        return self.page

    def accessible(self, *, everywhere: bool = True) -> None:
        """Hold what is shown against axe, wide and narrow, light and dark; of dialogs one of each is enough."""
        views = [(scheme, width) for scheme in ("light", "dark") for width in (1440, 390)]
        for scheme, width in views if everywhere else (views[0], views[3]):
            self.page.emulate_media(color_scheme=scheme)
            self.page.set_viewport_size({"width": width, "height": 900})
            assert violations(self.page) == [], (scheme, width, self.page.url)
            assert self.page.evaluate("document.documentElement.scrollWidth") <= width, (scheme, width)
        self.page.emulate_media(color_scheme=None)
        self.page.set_viewport_size({"width": 1280, "height": 1000})

    def close(self) -> None:
        """Close it, and hold what it did against what it may do."""
        self.context.close()
        assert self.complaints == []
        ours = urlsplit(self.url).netloc
        assert {urlsplit(url).netloc for url in self.asked if url.startswith("http")} == {ours}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    made = Deployment(tmp_path_factory.mktemp("dashboard"))
    with running(made):
        yield made


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    api = pytest.importorskip("playwright.sync_api")
    with api.sync_playwright() as playwright:
        made = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield made
        made.close()


@pytest.mark.slow
def test_from_nothing_to_a_finished_federation_without_a_reload(
    service: Deployment, browser: Any, tmp_path: Path
) -> None:
    screen = Screen(browser, service.url)
    page = screen.sign_in(service.token)
    page.get_by_text("No federation yet").wait_for()
    assert "potstill federation create" in page.locator("main").inner_text()
    screen.accessible()
    add_server_data(service)
    made = service.operator.create_federation(request(ODD, keep_ensemble=True))
    page.get_by_role("link", name=ODD).click()
    page.get_by_text("No device has joined yet").wait_for()
    assert page.locator("h1").inner_text() == ODD

    page.get_by_role("button", name="New join token").click()
    screen.accessible(everywhere=False)
    page.get_by_role("button", name="Make it").click()
    page.get_by_role("heading", name="The new join token").wait_for()
    join_token = page.locator("dialog code").inner_text()
    screen.accessible(everywhere=False)
    page.get_by_role("button", name="I have kept it").click()
    with pytest.raises(ApiError):
        Hand(service, made.id, made.join_token, "early")
    hands = [Hand(service, made.id, join_token, name) for name in ("a", "b", "left behind")]
    page.get_by_role("button", name="Start").click()
    page.get_by_text("Round 1: 0 of 3 have answered").wait_for(timeout=60_000)
    held = hold(page)
    hands[0].train()
    page.get_by_text("Round 1: 1 of 3 have answered").wait_for()
    page.locator(".clients").get_by_role("cell", name="1", exact=True).wait_for()  # the updates of `a`
    assert page.evaluate("held()") == held, "what the operator holds survives what the devices do"
    page.locator(".now", has_text="left").wait_for()
    with pytest.raises(ApiError):
        hands[1].train(bad=HOSTILE)
    page.locator(".stream", has_text=HOSTILE).wait_for()
    hands[1].train()
    page.get_by_text("Round 1: 2 of 3 have answered").wait_for()
    screen.accessible()
    page.get_by_role("button", name="Close the round now").click()
    page.get_by_role("button", name="Close it").click()
    page.get_by_text("Round 2: 0 of 3 have answered").wait_for(timeout=60_000)
    row = page.get_by_role("row", name="left behind").filter(has=page.get_by_role("button", name="Revoke"))
    row.get_by_role("button", name="Revoke").click()
    page.locator("dialog").get_by_role("button", name="Revoke").click()
    for hand in hands[:2]:
        hand.train()
    page.locator(".title .badge", has_text="finished").wait_for(timeout=60_000)
    chart = page.locator(".accuracy .chart")
    wait_for(lambda: chart.get_attribute("aria-valuemax") == "2", why="no chart of two rounds")
    chart.focus()
    for key, told in (
        ("ArrowLeft", "round 2: "),
        ("ArrowLeft", "round 1: "),
        ("End", "round 2: "),
        ("Home", "round 1: "),
    ):
        page.keyboard.press(key)
        page.locator(".accuracy .tip", has_text=told).wait_for()
        assert (chart.get_attribute("aria-valuetext") or "").startswith(told), "who does not see it hears it"
    page.keyboard.press("Escape")
    page.locator(".accuracy .tip", has_text="Arrow keys move the crosshair").wait_for()
    box = chart.bounding_box()
    assert box
    page.mouse.move(box["x"] + box["width"] - 20, box["y"] + 80)
    page.locator(".accuracy .tip", has_text="round 2: ").wait_for()
    page.locator(".accuracy summary").click()
    assert [row.split("\t")[0] for row in page.locator(".accuracy tbody tr").all_inner_texts()] == [
        "round 2",
        "round 1",
    ]
    assert page.locator(".shares .heat .share").count() == 4
    left, right = (page.locator(f"main > {each}").bounding_box() for each in (".accuracy", ".shares"))
    assert left and right and left["y"] == right["y"] and left["x"] < right["x"], "chart and counts are side by side"
    assert page.locator(".shares .heat thead th").all_inner_texts() == ["2", "1"], (
        "the newest round is in sight on a phone"
    )
    page.locator(".shares .scroll").focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowRight")
    page.locator(".shares .tip", has_text="a, round 1: 50.0 %").wait_for()
    page.get_by_text("2 models predict together (weights: uniform, outputs combined: logits)").wait_for()
    with page.expect_download() as caught:
        page.locator(".ensemble").get_by_role("button", name="Download").click()
    assert caught.value.suggested_filename.endswith("-2-ensemble.tar")
    wait_for(lambda: "round 2" in page.locator(".costs").inner_text(), why="the costs of round 2 are not told")
    costs = page.locator(".costs tbody tr").all_text_contents()
    assert costs[0].startswith("in all") and "kB" in costs[0]
    page.locator(".explained .strip canvas").nth(7).wait_for()
    drawn = """canvas => new Set(canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data).size"""
    assert page.locator(".strip canvas").first.evaluate(drawn) > 2, "a picture of more than black and white"
    page.locator(".strip > li").first.get_by_text(re.compile(r"says \d+")).first.wait_for()
    page.get_by_text("the device's model after local training").wait_for()  # opened in the first round
    page.get_by_text("Who learns what of whose data").click()
    page.get_by_text("the device's model after local training").wait_for(state="hidden")
    page.screenshot(path=str(tmp_path / "finished.png"), full_page=True)
    screen.accessible()
    assert page.evaluate("performance.getEntriesByType('navigation').length") == 1
    screen.close()


def test_the_head_says_how_a_network_is_parted(service: Deployment, browser: Any) -> None:
    """A prototype with nothing of it is left as it was: the answer leaves such fields out."""
    body = request("parted").model_dump(mode="json", exclude_unset=True) | {"datasets": {}}
    network, other = {"name": "main", "architecture": "cnn-digits"}, {"name": "small", "architecture": "cnn-digits"}
    body["prototypes"] = [network | {"trains": ["4.*", "7.*"]}, other | {"keeps": ["7.*"]}]
    service.operator.create_federation(FederationCreate.model_validate(body))
    service.operator.create_federation(
        FederationCreate.model_validate(body | {"name": "whole", "prototypes": [network]})
    )
    screen = Screen(browser, service.url)
    page = screen.sign_in(service.token)
    page.get_by_role("link", name="parted").click()
    told = page.locator("dl.parts > div").all_inner_texts() if page.locator("dl.parts").wait_for() is None else []
    assert told == [
        "main: trained and sent\n4.*, 7.*",
        "main: frozen\nall other tensors; the base travels once",
        "small: kept by each device\n7.*",
    ]
    page.goto(f"{service.url}#/")
    page.get_by_role("link", name="whole").click()
    page.get_by_text("No device has joined yet").wait_for()
    assert page.locator("dl.parts").count() == 0
    screen.close()


def test_head_and_costs_are_told_by_what_the_task_is_measured_by(service: Deployment, browser: Any) -> None:
    body = request("quantities").model_dump(mode="json", exclude_unset=True) | {"datasets": {}}
    made = service.operator.create_federation(FederationCreate.model_validate(body))
    cost: dict[str, Any] = {"files": {"down": 2048, "up": 4096}, "seconds": {}, "flops": {}}
    figures = {"round": 1, "state": "published", "measured": 0.7312, "devices": 2, "answered": 2}
    round_ = {"id": "rnd_1", "federation_id": made.id, "index": 1, "state": "published", "asked": 2, "answered": 2}
    round_ |= {"lost": 0, "needed": 2, "min_updates": 2, "opened_at": "2026-01-01T00:00:00Z", "metrics": {}}
    report = {"networks": [], "before": cost, "total": cost, "rounds": [cost | figures], "learnt": []}
    report["targets"] = [{"target": 0.9, "round": 1, "cost": cost}]
    screen = Screen(browser, service.url)

    def told(route: Any) -> None:
        place = urlsplit(route.request.url).path.removeprefix(f"/v1/federations/{made.id}")
        if place == "":
            found = route.fetch()
            task = {"kind": "regression", "num_classes": 2, "input": {"shape": SHAPE}}
            shown = {
                "task": task,
                "metric": "rmse",
                "measured": 0.7312,
                "figures": {"main": {"rmse": 0.7312, "r2": 0.25}},
            }
            route.fulfill(response=found, json=found.json() | shown)
        else:
            answers = {"/rounds": {"items": [round_], "next": None}, "/report": report}
            route.fulfill(json=answers.get(place, round_ | {"participants": []}))

    screen.page.route(re.compile(rf"/v1/(federations/{made.id}(/rounds.*|/report.*)?|rounds/rnd_1)$"), told)
    page = screen.sign_in(service.token)
    page.get_by_role("link", name="quantities").click()
    page.locator(".costs table").first.wait_for()
    facts = page.locator("dl.facts > div").all_inner_texts()
    assert {"task\nregression, 2", "rmse\n0.7312", "r2\n0.25"} <= set(facts) and len(facts) == 7
    costs = page.locator(".costs").inner_text()
    assert "rmse" in costs and "0.7312" in costs
    assert "accuracy" not in costs and "First reached" not in costs
    screen.close()


def test_a_retry_leaves_out_whom_the_failure_names(service: Deployment, browser: Any, tmp_path: Path) -> None:
    """The page's own advice for values that are not finite, followed on the page; `b` is named, `b-2` is not."""
    if not any(item.name == "test" for item in service.operator.datasets().items):
        add_server_data(service)
    made = service.operator.create_federation(request("leaves out", total=1, min_clients=3, min_updates=3))
    hands = [Hand(service, made.id, made.join_token, name) for name in ("a", "b", "b-2")]
    service.operator.start_federation(made.id)
    wait_for(lambda: service.operator.federation(made.id).current_round is not None)
    service.kill("worker")
    for hand in hands:
        round_id = hand.train()
    jobs = lambda: service.operator.jobs(federation=made.id).items  # noqa: E731
    job = wait_for(lambda: next((each for each in jobs() if each.round_id == round_id), None))
    service.operator.cancel_job(job.id)
    with sqlite3.connect(service.home / "potstill.db") as database:
        told = ("failed", "non_finite", "update of 'b': conv1.weight has NaN", job.id)
        database.execute("UPDATE jobs SET state = ?, error = ?, detail = ? WHERE id = ?", told)
    database.close()
    screen = Screen(browser, service.url)
    page = screen.sign_in(service.token)
    page.get_by_role("link", name="leaves out").click()
    page.get_by_role("button", name="Retry").click()
    page.locator("dialog").wait_for()
    ticked = {box.get_attribute("value"): box.is_checked() for box in page.locator("dialog input").all()}
    assert ticked == {hands[0].id: False, hands[1].id: True, hands[2].id: False}
    page.screenshot(path=str(tmp_path / "retry.png"))
    screen.accessible(everywhere=False)
    page.locator("dialog").get_by_role("button", name="Retry").click()
    page.get_by_role("button", name="Fuse them all the same").click()
    page.get_by_text("The job is queued again").wait_for()
    service.start_worker()
    wait_for(lambda: service.operator.federation(made.id).state == "finished", why="the round is not fused")
    people = {each.name: each.state for each in service.operator.round(round_id).participants}
    assert people == {"a": "answered", "b": "excluded", "b-2": "answered"}
    screen.complaints[:] = [line for line in screen.complaints if "409" not in line]  # too few, then by force
    screen.close()


def test_every_other_button(service: Deployment, browser: Any) -> None:
    """What the other tests do not press: each is followed in the service."""
    if not any(item.name == "test" for item in service.operator.datasets().items):
        add_server_data(service)
    made = service.operator.create_federation(request("pressed", total=3, on_deadline="fail"))
    hands = [Hand(service, made.id, made.join_token, name) for name in ("a", "b")]
    service.operator.start_federation(made.id)
    now = lambda: service.operator.federation(made.id)  # noqa: E731
    screen = Screen(browser, service.url)
    page = screen.sign_in(service.token)
    page.goto(f"{service.url}#/federations/{made.id}")

    def press(name: str, sure: str | None = None) -> None:
        page.locator("main").get_by_role("button", name=name, exact=True).first.click()
        if sure:
            screen.accessible(everywhere=False)
            page.locator("dialog").get_by_role("button", name=sure, exact=True).click()

    def told(text: str) -> None:
        page.locator(".toast").first.wait_for()
        assert page.locator(".toast span").all_inner_texts() == [text]
        toast = page.locator(".toast")
        toast.get_by_role("button", name="close").click()
        toast.wait_for(state="detached")

    for hand in hands:
        hand.train()
    page.get_by_text("Round 2: 0 of 2 have answered").wait_for(timeout=60_000)
    press("1")
    page.get_by_role("heading", name="Who took part in round 1").wait_for()
    press("Change the plan")
    page.locator("dialog input").fill("{")
    page.locator("dialog").get_by_role("button", name="Cancel").click()
    press("Change the plan")
    page.locator("dialog input").fill('{"rounds": {"total": 4, "deadline_seconds": 4}}')
    page.locator("dialog").get_by_role("button", name="Change it").click()
    told("The next round has the new plan")
    assert now().rounds_total == 4
    press("Promote", "Promote")
    told("Promoted")
    press("Roll back", "Roll back")
    told("Rolled back")
    assert [model.round for model in service.operator.models(federation=made.id).items if model.current] == [0]
    with page.expect_download() as caught:
        page.locator(".models").get_by_role("button", name=re.compile("Download")).first.click()
    assert caught.value.suggested_filename.startswith("pressed-main-")
    press("Pause", "Pause")
    told("pause: done")
    press("Resume", "Resume")
    told("resume: done")
    for hand in [*hands, hands[0]]:  # the next round is short, and one client answers in it
        hand.train()
    page.get_by_text("too few updates").first.wait_for()
    service.operator.change_plan(made.id, PlanChange.model_validate({"rounds": {"deadline_seconds": 600}}))
    page.locator(".rounds tbody tr", has_text="failed").first.get_by_role("button").click()
    press("Fuse what is here")
    page.locator("dialog").get_by_role("button", name="Fuse them all the same").click()
    told("The round is closed")
    states = lambda: [each.state for each in service.operator.rounds(made.id).items]  # noqa: E731
    wait_for(lambda: states()[:3] == ["published"] * 3, why="what is here is not fused")
    service.kill("worker")
    for hand in hands:
        hand.train()
    waiting = page.locator(".jobs tbody tr", has_text="waits for a worker")  # the page may yet show one that is done
    waiting.get_by_role("button", name="Cancel").click()
    page.locator("dialog").get_by_role("button", name="Cancel the job").click()
    told("The job is told to end")
    press("Cancel", "Cancel the federation")
    told("cancel: done")
    service.start_worker()
    page.get_by_text("It was cancelled, and devices were told.").wait_for()
    assert now().state == "cancelled"
    page.get_by_role("link", name="federations").click()
    page.get_by_role("link", name="pressed").wait_for()
    screen.close()


def poison(service: Deployment, federation_id: str) -> None:
    """Put texts into the database that the API would refuse: what an older version may have let in."""
    shares = {"weights": {HOSTILE: 1.0}, "model": {"prototypes": {HOSTILE: 0.5}}, "accuracy": None}
    texts = {
        "federations": {"name": HOSTILE, "error": HOSTILE, "detail": HOSTILE},
        "clients": {"name": HOSTILE},
        "rounds": {"reason": HOSTILE, "metrics": json.dumps(shares)},
        "jobs": {"error": HOSTILE, "detail": HOSTILE},
        "models": {"prototype": HOSTILE},
        "events": {"data": json.dumps({"client": HOSTILE, "detail": HOSTILE})},
    }
    with sqlite3.connect(service.home / "potstill.db") as database:
        for table, values in texts.items():
            columns = ", ".join(f"{name} = ?" for name in values)
            key = "id" if table == "federations" else "federation_id"
            database.execute(f"UPDATE {table} SET {columns} WHERE {key} = ?", (*values.values(), federation_id))
        database.execute("UPDATE updates SET metrics = ?", (json.dumps({"loss": None}),))
    database.close()


@pytest.fixture(scope="module")
def hostile(service: Deployment) -> str:
    """A federation of one finished round, whose every text is markup."""
    if not any(item.name == "test" for item in service.operator.datasets().items):
        add_server_data(service)
    made = service.operator.create_federation(request("hostile", total=1, min_clients=1, min_updates=1))
    hand = Hand(service, made.id, made.join_token, "a")
    service.operator.start_federation(made.id)
    hand.train()
    hand.client.close()
    wait_for(lambda: service.operator.federation(made.id).state == "finished")
    poison(service, made.id)
    return made.id


def test_markup_in_names_is_text_everywhere(service: Deployment, browser: Any, hostile: str, tmp_path: Path) -> None:
    """H04, and C10: what is not a number is called so."""
    screen = Screen(browser, service.url)
    page = screen.sign_in(service.token)
    page.get_by_role("link", name=HOSTILE).click()
    page.get_by_role("heading", name=HOSTILE).wait_for()
    for place in (".fault", ".rounds", ".round", ".clients", ".jobs", ".models", ".stream"):
        page.locator(place).filter(has_text=HOSTILE).first.wait_for()
    page.locator(".shares .heat .share").first.hover()
    page.locator(".shares .tip", has_text=HOSTILE).wait_for()
    page.locator(".accuracy .chart").focus()
    page.keyboard.press("End")
    page.locator(".accuracy .tip", has_text=HOSTILE).wait_for()
    page.get_by_role("button", name="Revoke").first.click()
    page.locator("dialog", has_text=HOSTILE).wait_for()
    page.keyboard.press("Escape")
    assert page.locator("main img").count() == 0
    assert page.locator(".rounds", has_text="not a number").count()
    assert page.locator(".round", has_text="not a number").count()
    page.screenshot(path=str(tmp_path / "hostile.png"), full_page=True)
    screen.close()


def test_a_viewer_looks_and_cannot_act(service: Deployment, browser: Any, hostile: str) -> None:
    viewer = service.operator.create_token("looks on").token
    screen = Screen(browser, service.url)
    page = screen.sign_in(viewer)
    page.get_by_role("link", name=HOSTILE).click()
    page.locator(".models table").wait_for()
    for name in ("Revoke", "Promote", "Roll back", "Retry", "Cancel", "Start"):
        assert page.get_by_role("button", name=name).count() == 0
    assert page.get_by_role("button", name="Download").count()
    page.reload()
    page.get_by_role("heading", name=HOSTILE).wait_for()
    screen.close()


KEPT = "[Object.keys(localStorage).length, Object.keys(sessionStorage).length, document.cookie]"


def test_a_browser_signs_in_once_for_all_its_tabs_and_scripts_see_no_token(service: Deployment, browser: Any) -> None:
    screen = Screen(browser, service.url)
    page = screen.page
    page.goto(service.url)
    second = screen.context.new_page()
    second.goto(service.url)
    second.get_by_label("Operator or viewer token").wait_for()
    screen.sign_in(service.token)
    page.get_by_role("heading", name="Federations", exact=True).wait_for()
    second.get_by_role("heading", name="Federations", exact=True).wait_for()
    third = screen.context.new_page()
    third.goto(service.url)
    third.get_by_role("heading", name="Federations", exact=True).wait_for()
    (cookie,) = screen.context.cookies()
    assert (cookie["httpOnly"], cookie["sameSite"], cookie["path"], cookie["expires"]) == (True, "Strict", "/v1", -1)
    assert page.evaluate(KEPT) == [0, 0, ""]
    assert service.token not in page.content()
    third.get_by_role("button", name="Sign out").click()
    for each in (page, second, third):
        each.get_by_label("Operator or viewer token").wait_for()
    assert screen.context.cookies() == []
    answer = httpx.get(f"{service.url}/v1/status", headers={"Cookie": f"{cookie['name']}={cookie['value']}"})
    assert answer.status_code == 401, "it is worth nothing to whoever copied it"
    screen.close()


def test_signing_in_says_what_a_token_is_not(service: Deployment, browser: Any, hostile: str) -> None:
    assert hostile, "there are data to test on"
    made = service.operator.create_federation(request("to be joined"))
    screen = Screen(browser, service.url)
    for token, said in (
        ("pst_op_made-up", "unknown or was replaced"),
        ("clé", "letters, digits"),
        (made.join_token, "a device's or a join token"),
    ):
        screen.sign_in(token).get_by_role("alert").get_by_text(said).wait_for()
    screen.complaints.clear()  # the browser's own lines of 401 and 403
    screen.close()


def test_on_a_phone_in_the_dark_by_keyboard(service: Deployment, browser: Any, hostile: str) -> None:
    screen = Screen(browser, service.url, color_scheme="dark")
    screen.page.set_viewport_size({"width": 390, "height": 844})
    page = screen.sign_in(service.token)
    page.get_by_role("link", name=HOSTILE).focus()
    page.keyboard.press("Enter")
    page.locator(".models table").wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(23, 22, 20)"
    screen.close()


def test_a_lost_line_is_said_and_found_again(service: Deployment, browser: Any) -> None:
    screen = Screen(browser, service.url)
    page = screen.sign_in(service.token)
    page.locator("#live.alive", has_text="live").wait_for()
    service.kill("api")
    page.get_by_text("The connection is lost").wait_for()
    service.start_api()
    page.get_by_text("The connection is lost").wait_for(state="hidden", timeout=20_000)
    page.locator("#live.alive", has_text="live").wait_for()
    screen.complaints[:] = [line for line in screen.complaints if "ERR_" not in line]  # of the requests in between
    screen.close()


HIDDEN = """(hidden) => {
    Object.defineProperty(document, "hidden", { get: () => hidden, configurable: true });
    document.dispatchEvent(new Event("visibilitychange"));
}"""


def test_a_tab_that_nobody_sees_gives_its_connection_back(service: Deployment, browser: Any) -> None:
    """Or the seventh tab of a browser would wait for ever."""
    screen = Screen(browser, service.url)
    screen.page.clock.install()
    page = screen.sign_in(service.token)
    page.locator("#live.alive", has_text="live").wait_for()
    page.evaluate(HIDDEN, True)
    with page.expect_event("requestfailed", lambda each: "/v1/events" in each.url):
        page.clock.fast_forward(61_000)
    with page.expect_request(lambda each: "/v1/events" in each.url) as again:
        page.evaluate(HIDDEN, False)
    assert int(again.value.headers["last-event-id"]) > 0, "it goes on where it was"
    assert page.get_by_text("The connection is lost").is_hidden()
    page.locator("#live.alive", has_text="live").wait_for()
    screen.close()


def test_the_policy_of_the_page(service: Deployment) -> None:
    page = httpx.get(service.url)
    policy = dict(part.strip().partition(" ")[::2] for part in page.headers["content-security-policy"].split(";"))
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
    assert policy["require-trusted-types-for"] == "'script'"
    assert "unsafe" not in page.headers["content-security-policy"]
    assert shutil.which("chromium")

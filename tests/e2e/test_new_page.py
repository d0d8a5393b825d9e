"""A new federation by the page's form, in a real browser: from a file on this machine to a round that is published."""

import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from contract.tensors import TensorFile, write_file
from contract.wire.federations import FederationCreate
from potstill.commands.dataset import as_safetensors
from tools.deployment import CLASSES, SHAPE, Deployment

from .test_dashboard import Hand, Screen, browser, pytestmark, service

__all__ = ["browser", "pytestmark", "service"]
LAYER = {
    "nodes": [{"name": "y", "op": "aten.linear.default", "args": [{"node": "input"}, {"tensor": "fc.weight"}]}],
    "output": "y",
}
NETWORK = {
    "input": {"shape": [4]},
    "output": [2],
    "tensors": [{"name": "fc.weight", "dtype": "float32", "shape": [2, 4], "kind": "parameter"}],
    "train": LAYER,
    "eval": LAYER,
}


@pytest.fixture
def samples(tmp_path: Path) -> Path:
    """A labelled set of three pieces of an upload."""
    rng, path = np.random.default_rng(0), tmp_path / "brought here.npz"
    count = 600 * 1024 // (4 * int(np.prod(SHAPE)))
    np.savez(path, x=rng.random((count, *SHAPE), np.float32), y=np.arange(count) % CLASSES)
    return path


def form(screen: Screen, token: str) -> Any:
    """Sign in and go to the form, as people do."""
    page = screen.sign_in(token)
    page.get_by_role("link", name="New federation").or_(page.get_by_role("link", name="with the form")).first.click()
    page.get_by_label("Preset").wait_for()
    return page


def unfold(page: Any, title: str) -> None:
    page.locator("summary", has_text=title).click()


def upload(page: Any, path: Path) -> None:
    unfold(page, "Upload a data set")
    page.locator("#dataset-file").set_input_files(str(path))
    page.locator(".new-data").get_by_role("button", name="Upload").click()


def fill(page: Any, name: str) -> None:
    page.get_by_label("Name", exact=True).fill(name)
    page.get_by_label("Input shape").fill(", ".join(map(str, SHAPE)))
    page.get_by_label("Number of classes").fill(str(CLASSES))
    page.get_by_label("Architecture", exact=True).select_option("cnn-digits")


def asked(page: Any) -> dict[str, Any]:
    """Return the JSON that the page shows."""
    found: dict[str, Any] = json.loads(page.locator(".new-told code").first.inner_text())
    return found


def without(complaints: list[str], *statuses: int) -> list[str]:
    """Return what a page complained of, but for the browser's own lines of answers that a test asked for."""
    return [line for line in complaints if not any(f"status of {status}" in line for status in statuses)]


def test_from_a_file_and_a_form_to_a_published_round(
    service: Deployment, browser: Any, samples: Path, tmp_path: Path
) -> None:
    screen = Screen(browser, service.url)
    page = form(screen, service.token)
    broken: list[str] = []

    def breaks(route: Any) -> None:  # the second piece, once
        if not broken and route.request.headers["upload-offset"] != "0":
            broken.append(route.request.headers["upload-offset"])
            route.abort()
        else:
            route.continue_()

    page.route("**/v1/uploads/*", lambda route: breaks(route) if route.request.method == "PATCH" else route.continue_())
    upload(page, samples)
    page.get_by_text("brought-here is on the service").wait_for()
    assert broken == [str(256 * 1024)]
    page.get_by_label("To test on").select_option("brought-here")
    assert page.get_by_label("Input shape").input_value() == ", ".join(map(str, SHAPE)), "as the set says"
    assert page.get_by_label("Number of classes").input_value() == str(CLASSES)
    page.get_by_label("Name", exact=True).fill("made by hand")
    page.get_by_label("Architecture", exact=True).select_option("cnn-digits")
    page.get_by_label("Total").fill("1")
    unfold(page, "Its parts and their options")
    page.get_by_label("Fuse", exact=True).select_option("trimmed_mean")
    page.get_by_label("Trim").fill("0.2")
    page.get_by_text("made by hand can be created: 1 rounds of fedavg").wait_for()
    body = asked(page)
    assert body == {
        "name": "made by hand",
        "task": {"input": {"shape": SHAPE}, "num_classes": CLASSES},
        "prototypes": [{"name": "main", "architecture": "cnn-digits"}],
        "recipe": {"name": "fedavg", "options": {"fuse": {"kind": "trimmed_mean", "trim": 0.2}}},
        "rounds": {"total": 1},
        "datasets": {"test": "brought-here"},
    }
    with page.expect_download() as saved:
        page.get_by_role("button", name="Save federation.json").click()
    assert json.loads(saved.value.path().read_text()) == body
    page.screenshot(path=str(tmp_path / "form.png"), full_page=True)
    page.get_by_role("button", name="Create and start").click()
    page.get_by_role("heading", name="made by hand is there").wait_for()
    screen.accessible(everywhere=False)
    page.screenshot(path=str(tmp_path / "made.png"), full_page=True)
    held = decoded(page)
    made = service.operator.federation(held["federation"])
    assert (held["service"], made.name, made.composition.fuse.kind) == (service.url, "made by hand", "trimmed_mean")
    for command in page.locator(".join code").all_inner_texts():
        assert held["join_token"] in command or command in ("service", "federation", "join_token")
        assert service.token not in command
    hand = Hand(service, held["federation"], held["join_token"], "a")
    hand.train()
    hand.client.close()
    page.get_by_role("link", name="To its page").click()
    page.locator(".badge.good", has_text="finished").first.wait_for(timeout=60_000)
    screen.complaints[:] = [line for line in screen.complaints if "ERR_FAILED" not in line]  # the piece that was lost
    screen.close()


def decoded(page: Any) -> dict[str, Any]:
    """Return what a phone reads."""
    import zxingcpp

    picture = Image.open(io.BytesIO(page.locator(".qr").screenshot())).convert("L")
    (found,) = zxingcpp.read_barcodes(np.asarray(picture))
    held: dict[str, Any] = json.loads(found.text)
    assert set(held) == {"service", "federation", "join_token"}
    return held


def test_the_command_that_the_page_shows_does_the_same(service: Deployment, browser: Any, tmp_path: Path) -> None:
    screen = Screen(browser, service.url)
    page = form(screen, service.token)
    fill(page, "made by a command")
    page.get_by_text("made by a command can be created").wait_for()
    (tmp_path / "federation.json").write_text(json.dumps(asked(page)))
    command = page.locator(".new-told code", has_text="potstill federation create").inner_text().split()
    env = {"POTSTILL_TOKEN": service.token, "PATH": str(Path(sys.executable).parent)}
    done = subprocess.run(
        [sys.executable, "-m", "potstill", *command[1:], "--json"],
        cwd=tmp_path,
        env=env,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert FederationCreate.model_validate(asked(page)).name == json.loads(done.stdout)["name"] == "made by a command"
    assert service.token not in page.content()
    screen.close()


def test_what_is_wrong_stands_beside_its_field_with_the_remedy(service: Deployment, browser: Any) -> None:
    screen = Screen(browser, service.url)
    page = form(screen, service.token)
    fill(page, "wrong")
    page.get_by_label("Total").fill("0")
    wrong = page.locator("#f-rounds-total-fault")
    wrong.get_by_text("greater than or equal to 1").wait_for()
    total = page.get_by_label("Total")
    assert total.get_attribute("aria-invalid") == "true"
    assert "f-rounds-total-fault" in (total.get_attribute("aria-describedby") or "")
    total.fill("2")
    page.get_by_text("wrong can be created").wait_for()
    page.get_by_label("Preset").select_option("feddf")
    page.get_by_role("button", name="recipe.distil.data").click()
    field = page.locator("#f-recipe-distil-data")
    assert field.evaluate("node => node === document.activeElement"), "it leads there, and unfolds what it is in"
    assert page.locator("#f-recipe-distil-data-fault", has_text="datasets.unlabeled").is_visible()
    page.get_by_label("Preset").select_option("fedavg")
    page.get_by_text("wrong can be created").wait_for()
    service.operator.create_federation(FederationCreate.model_validate(asked(page)))
    page.get_by_role("button", name="Create", exact=True).click()
    page.locator("#f-name-fault", has_text="choose another name").wait_for()
    assert page.get_by_label("Name", exact=True).evaluate("node => node === document.activeElement")
    page.get_by_label("Name", exact=True).fill("right")
    page.get_by_role("button", name="Create", exact=True).click()
    page.get_by_role("heading", name="right is there").wait_for()
    page.get_by_role("button", name="Start it").click()
    page.get_by_role("heading", name="right").wait_for()
    screen.complaints[:] = without(screen.complaints, 409, 422)
    screen.close()


def test_options_prototypes_and_a_network_of_ones_own(service: Deployment, browser: Any, tmp_path: Path) -> None:
    screen = Screen(browser, service.url)
    page = form(screen, service.token)
    (tmp_path / "own.json").write_text(json.dumps(NETWORK))
    write_file(tmp_path / "own.safetensors", {"fc.weight": np.ones((2, 4), np.float32)})
    unfold(page, "Register a network of your own")
    page.locator("#network-file").set_input_files(str(tmp_path / "own.json"))
    page.get_by_label("Its first weights").set_input_files(str(tmp_path / "own.safetensors"))
    page.locator(".new-networks").get_by_role("button", name="Upload").click()
    page.get_by_text("own is on the service").wait_for()
    page.get_by_label("Architecture", exact=True).select_option("net:own")
    page.get_by_label("Name", exact=True).fill("several")
    page.get_by_label("Input shape").fill("4")
    page.get_by_label("Number of classes").fill("2")
    page.get_by_text("several can be created").wait_for()
    page.get_by_role("button", name="Another prototype").click()
    page.get_by_label("Architecture", exact=True).nth(1).select_option("mlp")
    unfold(page, "Options of mlp")
    page.get_by_label("Hidden").fill("8, 4")
    page.get_by_role("button", name="A larger model on the server").click()
    assert page.get_by_role("group", name="the server's model").is_visible()
    screen.accessible()
    page.get_by_role("button", name="No larger model on the server").click()
    page.get_by_text("several can be created").wait_for()
    networks = [{"name": "main", "architecture": "net:own"}]
    assert asked(page)["prototypes"] == [
        *networks, {"name": "prototype-2", "architecture": "mlp", "options": {"hidden": [8, 4]}}
    ]  # fmt: skip
    page.get_by_role("button", name="Remove this prototype").nth(1).click()
    assert asked(page)["prototypes"] == networks
    unfold(page, "What devices do in a round")
    page.get_by_label("Epochs").fill("7")
    unfold(page, "More of the rounds")
    page.get_by_label("Gate", exact=True).check()
    page.get_by_label("Max drop").fill("0.05")
    unfold(page, "Seed, queue")
    page.get_by_label("Max uses").fill("20")
    body = asked(page)
    assert (body["local"]["epochs"], body["rounds"], body["join"]) == (
        7,
        {"gate": {"max_drop": 0.05}},
        {"max_uses": 20},
    )
    page.get_by_role("button", name="Epochs as the recipe says").click()
    assert "local" not in asked(page)
    page.get_by_label("Gate", exact=True).uncheck()
    page.get_by_text("several can be created").wait_for()
    screen.complaints[:] = without(screen.complaints, 422)
    screen.close()


NPZ = """async (bytes) => {
    const { safetensors } = await import(new URL("static/dashboard/new/npz.js", document.baseURI));
    const made = new Uint8Array(await (await safetensors(new Blob([new Uint8Array(bytes)]))).arrayBuffer());
    return [...made];
}"""


@pytest.mark.parametrize(
    ("packs", "inputs", "labels"),
    [
        (np.savez, np.float32, np.arange(5)),
        (np.savez_compressed, np.float64, np.arange(5, dtype=np.uint8)),
        (np.savez, np.uint8, np.arange(5) / 2),
        (np.savez, np.int64, np.eye(5, 3).astype(bool)),
    ],
)
def test_an_npz_becomes_what_the_command_line_makes_of_it(
    service: Deployment, browser: Any, tmp_path: Path, packs: Any, inputs: Any, labels: Any
) -> None:
    file = tmp_path / "set.npz"
    packs(file, x=np.random.default_rng(0).uniform(0, 200, (5, 3, 2)).astype(inputs), y=labels)
    page = browser.new_page()
    page.goto(service.url)
    (tmp_path / "made.safetensors").write_bytes(bytes(page.evaluate(NPZ, list(file.read_bytes()))))
    page.close()
    with TensorFile(as_safetensors(file, tmp_path)) as one, TensorFile(tmp_path / "made.safetensors") as other:
        assert set(one.names) == set(other.names)
        for name in one.names:
            mine, theirs = one.read(name), other.read(name)
            assert (mine.dtype, mine.shape) == (theirs.dtype, theirs.shape)
            assert np.array_equal(mine, theirs), name


def test_a_file_that_is_none_and_an_upload_that_is_stopped_leave_nothing(
    service: Deployment, browser: Any, samples: Path, tmp_path: Path
) -> None:
    screen = Screen(browser, service.url)
    page = form(screen, service.token)
    (tmp_path / "text.safetensors").write_text("not a file of tensors")
    upload(page, tmp_path / "text.safetensors")
    page.locator(".new-data").get_by_role("alert").wait_for()
    page.route("**/v1/uploads/*", lambda route: None if route.request.method == "PATCH" else route.continue_())
    page.locator("#dataset-file").set_input_files(str(samples))
    page.locator("#dataset-name").fill("stopped")
    with page.expect_request(lambda each: each.method == "PATCH"):
        page.locator(".new-data").get_by_role("button", name="Upload").click()
    with page.expect_request(lambda each: each.method == "DELETE"):
        page.get_by_role("button", name="Stop").click()
    page.get_by_text("Stopped; nothing was kept").wait_for()
    assert not {item.name for item in service.operator.datasets().items} & {"text", "stopped"}
    screen.complaints.clear()  # the browser's own lines of the refusal and the stop
    screen.close()


def test_a_viewer_is_told_that_it_takes_an_operator(service: Deployment, browser: Any) -> None:
    screen = Screen(browser, service.url)
    page = screen.sign_in(service.operator.create_token("looks at the form").token)
    page.locator("#who", has_text="viewer").wait_for()
    page.goto(f"{service.url}/#/new")
    page.get_by_text("This needs an operator's token").wait_for()
    assert page.get_by_role("button", name="Create").count() == 0
    screen.accessible(everywhere=False)
    screen.close()


def test_the_form_on_a_phone_in_the_dark_by_keyboard(service: Deployment, browser: Any, tmp_path: Path) -> None:
    screen = Screen(browser, service.url, color_scheme="dark")
    screen.page.set_viewport_size({"width": 390, "height": 844})
    page = form(screen, service.token)
    page.get_by_label("Name", exact=True).focus()
    page.keyboard.type("by keyboard")
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    page.keyboard.type("1,8,8")
    page.keyboard.press("Tab")
    page.keyboard.type("10")
    page.get_by_label("Architecture", exact=True).focus()
    page.keyboard.type("cnn-digits")
    page.get_by_text("by keyboard can be created").wait_for()
    for summary in page.locator("summary").all():
        summary.focus()
        page.keyboard.press("Enter")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    named = "node => Boolean(node.labels?.length || node.ariaLabel)"
    assert all(each.evaluate(named) for each in page.locator("main input, main select").all())
    ids = page.evaluate("[...document.querySelectorAll('main [id]')].map((node) => node.id)")
    assert len(ids) == len(set(ids))
    page.screenshot(path=str(tmp_path / "phone.png"), full_page=True)
    screen.close()

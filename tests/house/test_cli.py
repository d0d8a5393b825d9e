"""The command line against a service that answers what a real one would."""

import json
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from typer.core import TyperGroup
from typer.main import get_command

from client_sdk import Connection, RoundReport, RunReport
from contract.tensors import TensorFile, write_file
from contract.wire.federations import FederationCreate
from potstill import connection, exits
from potstill.cli import app
from potstill.commands.client import summary
from potstill.commands.dataset import as_safetensors
from potstill.console import CliError, nest, parse_options, size
from service.api.routes.catalogue import built_in, list_recipes

from .command_line import FEDERATION, Service, call

pytestmark = pytest.mark.usefixtures("elsewhere")


COMMANDS = """
    architecture: list
    plugin: check list
    audit: list verify
    client: assign forget list reissue revoke run
    dataset: add list remove
    export: mlflow tensorboard
    federation: cancel create delete draft join-token list pause plan report resume retention rollback show spec start
    federation: watch
    job: cancel list retry show
    model: download import list promote
    network: check export list register remove show
    recipe: list show
    round: close ensemble explain export list show
    token: create list revoke rotate
    worker: list
    : backup compare config demo gc migrate predict replay restore simulate status up verify worker-health
"""
NAMED = [f"{group.strip()} {name}".strip() for line in COMMANDS.strip().splitlines()
         for group, names in [line.split(":")] for name in names.split()]  # fmt: skip


def commands(group: TyperGroup, *path: str) -> list[str]:
    """Every command below a group."""
    found = []
    for name, each in group.commands.items():
        found += commands(each, *path, name) if isinstance(each, TyperGroup) else [" ".join([*path, name])]
    return found


def test_the_commands_are_these() -> None:
    root = get_command(app)
    assert isinstance(root, TyperGroup)
    assert sorted(commands(root)) == sorted(NAMED)


@pytest.mark.parametrize("command", ["", *sorted(NAMED)])
def test_every_command_explains_itself(command: str) -> None:
    result = call(*command.split(), "--help")
    assert result.exit_code == 0
    assert "Usage:" in result.output


def test_version() -> None:
    assert call("--version").output.startswith("potstill ")


def test_list_for_people_and_for_programs(service: Service) -> None:
    service.on("GET", "/v1/federations", {"items": [FEDERATION], "next": None})
    people = call("federation", "list")
    assert people.exit_code == 0
    assert "digits" in people.output and "2/10" in people.output and "90.1 %" in people.output
    programs = json.loads(call("federation", "list", "--json").output)
    assert [(item["id"], item["accuracy"]) for item in programs] == [("fed_1", 0.9014)]


def test_list_walks_all_pages(service: Service) -> None:
    def page(request: httpx.Request) -> httpx.Response:
        last = "after" in request.url.params
        item = FEDERATION | {"id": "fed_2" if last else "fed_1"}
        return httpx.Response(200, json={"items": [item], "next": None if last else "fed_1"})

    service.answers["GET", "/v1/federations"] = page
    assert [item["id"] for item in json.loads(call("federation", "list", "--json").output)] == ["fed_1", "fed_2"]


def test_show_by_name_has_a_row_for_each_round(service: Service) -> None:
    service.on("GET", "/v1/federations", {"items": [FEDERATION], "next": None})
    service.on("GET", "/v1/federations/fed_1", FEDERATION)
    progress = {"phase": "generator", "step": 90, "of": 300, "eta": 12.4}
    job = {
        "id": "job_1", "kind": "generator", "state": "running", "federation_id": "fed_1", "round_id": None,
        "attempt": 1, "max_attempts": 5, "progress": progress, "created_at": "2026-11-28T00:00:00Z",
    }  # fmt: skip
    service.on("GET", "/v1/jobs", {"items": [job], "next": None})
    output = call("federation", "show", "digits").output
    assert "now: generator, 90 of 300, about 12 s left" in output
    assert "50.0 %" in output and "90.1 %" in output and "cnn-digits" in output


def test_show_has_the_task_s_own_figures_of_the_newest_models(service: Service) -> None:
    figures = {"rmse": 1.25, "mae": 0.5, "r2": 0.125}
    found = FEDERATION | {"figures": {"main": figures}, "metric": "rmse", "accuracies": [], "measurements": [[1, 1.25]]}
    service.on("GET", "/v1/federations/fed_1", found)
    service.on("GET", "/v1/jobs", {"items": [], "next": None})
    assert "main: rmse 1.25, mae 0.5, r2 0.125" in call("federation", "show", "fed_1").output


def test_a_network_that_is_a_document_is_shown_by_its_name(service: Service) -> None:
    architecture = "net:sha256-" + "0" * 64
    found = FEDERATION | {"prototypes": [{"architecture": architecture}], "networks": {architecture: "net:ward"}}
    service.on("GET", "/v1/federations/fed_1", found)
    service.on("GET", "/v1/jobs", {"items": [], "next": None})
    output = call("federation", "show", "fed_1").output
    assert "main: net:ward" in output and "sha256" not in output


def test_unknown_name_is_one_line_with_the_known_ones(service: Service) -> None:
    service.on("GET", "/v1/federations", {"items": [FEDERATION], "next": None})
    result = call("federation", "show", "letters")
    assert result.exit_code == exits.MISSING
    assert "no federation named 'letters'; there are: digits" in result.stderr
    assert "Traceback" not in result.output


def test_create_sends_what_the_options_say(service: Service) -> None:
    service.on("POST", "/v1/federations", FEDERATION | {"join_token": "pst_join_1"}, 201)
    service.on("POST", "/v1/federations/fed_1/start", FEDERATION)
    result = call(
        *"federation create --name digits --recipe fedgo-small --option link=sigmoid".split(),
        *"--option schedule.epochs=5".split(),
        *"--architecture cnn-digits --architecture-option widths=[8,16] --input-shape 1,8,8 --classes 10".split(),
        *"--rounds 3 --clients-per-round 0.4 --unlabeled server --test t --local epochs=2 --start".split(),
    )
    assert result.exit_code == 0, result.output
    body = json.loads(service.asked[0].content)
    expected = {
        "name": "digits",
        "recipe": {"name": "fedgo-small", "options": {"link": "sigmoid", "schedule.epochs": 5}},
        "prototypes": [{"architecture": "cnn-digits", "options": {"widths": [8, 16]}}],
        "task": {"num_classes": 10, "input": {"shape": [1, 8, 8]}},
        "rounds": {"total": 3, "clients_per_round": 0.4},
        "datasets": {"unlabeled": "server", "test": "t"},
        "local": body["local"],
    }
    assert FederationCreate.model_validate(body) == FederationCreate.model_validate(expected)
    assert body["local"]["epochs"] == 2
    assert body["local"]["optimizer"]["kind"] == "adam", "the other local values are fedgo's own"
    assert "pst_join_1" in result.output
    assert service.asked[1].url.path.endswith("/start")


def test_notes_of_creation_are_printed_and_shown(service: Service) -> None:
    note = {"path": "recipe.drop_worst", "note": "left out", "why": "no \x1b[31mset"}
    made = FEDERATION | {"notes": [note], "join_token": "pst_join_1"}
    service.on("POST", "/v1/federations", made, 201)
    service.on("GET", "/v1/federations/fed_1", made)
    service.on("GET", "/v1/jobs", {"items": [], "next": None})
    arguments = "--name a --recipe feddf --architecture mlp --input-shape 2 --classes 3"
    for command in (f"federation create {arguments}", "federation show fed_1"):
        result = call(*command.split())
        assert result.exit_code == 0, result.output
        assert "note: recipe.drop_worst: left out; no \N{REPLACEMENT CHARACTER}[31mset" in result.output


def test_a_draft_says_what_a_file_would_become(service: Service, tmp_path: Any) -> None:
    note = {"path": "recipe.drop_worst", "note": "left out", "why": "no set"}
    service.on("POST", "/v1/federations/draft", FEDERATION | {"name": "a", "notes": [note]})
    spec = {
        "name": "a",
        "task": FEDERATION["task"],
        "prototypes": [{"architecture": "mlp"}],
        "recipe": {"name": "feddf"},
    }
    (tmp_path / "spec.json").write_text(json.dumps(spec))
    result = call("federation", "draft", "spec.json")
    assert result.exit_code == 0, result.output
    assert result.output.startswith("a can be created: ")
    assert "note: recipe.drop_worst: left out; no set" in result.output
    assert json.loads(service.asked[0].content)["recipe"]["name"] == "feddf"


def test_a_plan_is_shown_and_changed(service: Service) -> None:
    service.on("GET", "/v1/federations/fed_1", FEDERATION)
    service.on("PATCH", "/v1/federations/fed_1/plan", FEDERATION)
    shown = call("federation", "plan", "fed_1")
    assert shown.exit_code == 0, shown.output
    assert "local.epochs" in shown.output and "rounds.total" in shown.output
    arguments = "--local epochs=2 --prototype small.batch_size=4 --round-option total=9"
    assert call("federation", "plan", "fed_1", *arguments.split()).exit_code == 0
    assert json.loads(service.asked[-1].content) == {
        "local": {"epochs": 2}, "prototypes": {"small": {"batch_size": 4}}, "rounds": {"total": 9},
    }  # fmt: skip
    refused = call("federation", "plan", "fed_1", "--local", "privacy=1")
    assert refused.exit_code != 0
    assert "local.privacy: it cannot be changed" in refused.stderr


def test_create_from_a_file_with_options_over_it(service: Service, tmp_path: Any) -> None:
    service.on("POST", "/v1/federations", FEDERATION | {"join_token": "pst_join_1"}, 201)
    spec = {
        "name": "a",
        "task": FEDERATION["task"],
        "prototypes": [{"architecture": "mlp"}],
        "recipe": {"name": "feddf"},
    }
    (tmp_path / "spec.json").write_text(json.dumps(spec))
    assert call("federation", "create", "--file", "spec.json", "--name", "b", "--json").exit_code == 0
    body = json.loads(service.asked[0].content)
    assert (body["name"], body["recipe"]["name"], body["prototypes"][0]["architecture"]) == ("b", "feddf", "mlp")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--name x --classes 3 --input-shape 4", "--architecture is missing; --recipe is missing"),
        ("--name x --classes 10 --input-shape 8x8", "write 1,8,8"),
        ("--option link", "is not of the form key=value"),
        ("--clients-per-round many", "neither a count such as 4 nor a fraction"),
        ("--file nothing.json", "cannot read nothing.json"),
    ],
)
def test_a_wrong_request_is_refused_before_it_is_sent(service: Service, arguments: str, message: str) -> None:
    result = call("federation", "create", *arguments.split())
    assert result.exit_code == 1
    assert message in result.stderr
    assert not service.asked


def test_a_problem_is_one_line_with_its_detail(service: Service) -> None:
    problem = {
        "type": "urn:potstill:problem:invalid-transition",
        "title": "Not possible in this state",
        "status": 409,
        "detail": "the federation is finished; create a new one",
    }
    service.on("POST", "/v1/federations/fed_1/start", problem, 409)
    result = call("federation", "start", "fed_1")
    assert result.exit_code == exits.REFUSED
    assert "the federation is finished; create a new one" in result.stderr
    assert result.stderr.count("\n") == 1
    assert "Traceback" not in result.output


DATASET = {
    "id": "dst_1", "name": "test", "digest": "sha256-" + "0" * 64, "size": 1, "num_samples": 3,
    "shape": [2], "dtype": "float32", "labeled": True, "created_at": "2026-01-01T00:00:00Z",
}  # fmt: skip


def test_dataset_add_converts_npz(service: Service, tmp_path: Any) -> None:
    received = tmp_path / "received.safetensors"

    def take(request: httpx.Request) -> httpx.Response:
        received.write_bytes(request.content)
        return httpx.Response(201, json=DATASET)

    service.answers["POST", "/v1/datasets"] = take
    np.savez(tmp_path / "data.npz", x=np.ones((3, 2)), y=np.array([0, 1, 2], np.uint8))
    result = call("dataset", "add", "test", "data.npz")
    assert result.exit_code == 0, result.output
    assert service.asked[0].url.params["name"] == "test"
    with TensorFile(received) as file:
        assert (file.info("inputs").dtype, file.info("labels").dtype) == ("F32", "I64")
        assert file.read("labels").tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    "labels", [np.full((2, 3, 3), 1 + 1e-9), np.array([1.0, 1 + 1e-9]), np.array([2**24 + 1.0] * 2)[:, None]]
)
def test_fractions_that_float32_would_round_away_are_sent_as_they_are(labels: np.ndarray, tmp_path: Path) -> None:
    np.savez(tmp_path / "d.npz", inputs=np.zeros((2, 3), "float32"), labels=labels)
    with TensorFile(as_safetensors(tmp_path / "d.npz", tmp_path)) as file:
        assert file.info("labels").dtype == "F64" and np.array_equal(file.read("labels").ravel(), labels.ravel())


@pytest.mark.parametrize("kind", [".npz", ".safetensors"])
def test_masks_of_0_and_255_are_taken_with_a_word_when_they_are_added(
    service: Service, tmp_path: Path, kind: str
) -> None:
    service.on("POST", "/v1/datasets", DATASET)
    masks = 255 * np.eye(4, dtype="uint8")[None].repeat(2, 0)
    for labels, said in ((masks, True), (masks // 255, False), (np.minimum(masks, 1) + masks // 255, False)):
        images = np.zeros((2, 1, 4, 4), "float32")
        if kind == ".npz":
            np.savez(tmp_path / "masks.npz", inputs=images, labels=labels)
        else:
            write_file(tmp_path / "masks.safetensors", {"inputs": images, "labels": labels})
        result = call("dataset", "add", "test", str(tmp_path / f"masks{kind}"))
        assert result.exit_code == 0 and ("labels are 0 or 255 alone" in result.stderr) == said


def test_dataset_add_takes_one_value_a_sample_as_a_regressions(tmp_path: Path) -> None:
    np.savez(tmp_path / "values.npz", x=np.ones((3, 2)), y=np.array([-0.5, 1, 2]))
    with TensorFile(as_safetensors(tmp_path / "values.npz", tmp_path)) as file:
        assert file.info("labels").dtype == "F32" and file.read("labels").tolist() == [[-0.5], [1], [2]]


@pytest.mark.parametrize(("name", "message"), [("a.csv", "only .safetensors and .npz"), ("b.npz", "there is no file")])
def test_dataset_add_refuses_other_files(service: Service, tmp_path: Any, name: str, message: str) -> None:
    (tmp_path / "a.csv").write_text("1,2\n")
    result = call("dataset", "add", "test", name)
    assert result.exit_code == 1
    assert message in result.stderr


def test_token_create_shows_the_secret_once(service: Service) -> None:
    made = {"id": "tok_1", "name": "wall", "role": "viewer", "created_at": "2026-01-01T00:00:00Z"}
    service.on("POST", "/v1/tokens", made | {"token": "pst_view_1"}, 201)
    service.on("GET", "/v1/tokens", {"items": [made], "next": None})
    assert "pst_view_1" in call("token", "create", "--name", "wall").output
    assert "pst_view_1" not in call("token", "list").output


def test_config_masks_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POTSTILL_SECRET", "a-very-secret-secret")
    monkeypatch.setenv("POTSTILL_DATABASE_URL", "postgresql://ann:hidden@db/potstill")
    output = call("config").output
    values = json.loads(call("config", "--json").output)
    assert "very-secret" not in output and "hidden" not in output
    assert values["database_url"] == "postgresql://ann:********@db/potstill"
    assert values["secret"] == "********"


def test_config_names_the_wrong_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POTSTILL_PORT", "many")
    result = call("config")
    assert result.exit_code == 1
    assert "POTSTILL_PORT" in result.stderr


def test_no_token_says_where_it_is_looked_for() -> None:
    result = call("federation", "list")
    assert result.exit_code == exits.TOKEN
    assert "POTSTILL_TOKEN" in result.stderr and "operator.token" in result.stderr


def test_home_folder_gives_url_and_token(tmp_path: Any) -> None:
    (tmp_path / ".potstill").mkdir()
    (tmp_path / ".potstill" / "url").write_text("http://127.0.0.1:9999/\n")
    (tmp_path / ".potstill" / "operator.token").write_text("pst_op_9\n")
    assert connection.find_url(None) == "http://127.0.0.1:9999"
    with connection.operator() as client:
        assert client.url.rstrip("/") == "http://127.0.0.1:9999"


def test_nobody_there_says_how_to_start(service: Service) -> None:
    def refuse(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused", request=request)

    service.answers["GET", "/v1/federations"] = refuse
    result = call("federation", "list")
    assert result.exit_code == exits.UNREACHABLE
    assert "potstill up" in result.stderr


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (1536, "1.5 KiB"), (5 << 30, "5.0 GiB")]
)
def test_sizes_as_people_read_them(count: int, text: str) -> None:
    assert size(count) == text


def test_options_are_json_or_text() -> None:
    assert parse_options(["a=1", "b=x", "c=[1, 2]", "d=true", "e=k=v"]) == {
        "a": 1, "b": "x", "c": [1, 2], "d": True, "e": "k=v",
    }  # fmt: skip


def test_dotted_keys_nest() -> None:
    assert nest({"a.b": 1, "a.c": 2, "d": 3}) == {"a": {"b": 1, "c": 2}, "d": 3}
    with pytest.raises(CliError, match="has a value of its own"):
        nest({"a": 1, "a.b": 2})


def test_any_field_of_rounds_can_be_given(service: Service) -> None:
    service.on("POST", "/v1/federations", FEDERATION | {"join_token": "pst_join_1"}, 201)
    result = call(
        *"federation create --name a --recipe fedavg --architecture mlp --input-shape 2 --classes 3".split(),
        *"--rounds 3 --round-option on_deadline=extend --round-option gate.max_drop=0.02 --validation v".split(),
    )
    assert result.exit_code == 0, result.output
    rounds = json.loads(service.asked[0].content)["rounds"]
    assert (rounds["total"], rounds["on_deadline"], rounds["gate"]["max_drop"]) == (3, "extend", 0.02)


def test_a_data_set_that_is_missing_is_called_by_its_option(service: Service) -> None:
    detail = "recipe.distil.data: the recipe reads an unlabelled server set; name datasets.unlabeled"
    refusal = {"type": "urn:potstill:problem:invalid-field", "title": "A field is not valid", "status": 422}
    service.on("POST", "/v1/federations", refusal | {"detail": detail, "field": "recipe.distil.data"}, 422)
    arguments = "--name a --recipe feddf --architecture mlp --input-shape 2 --classes 3"
    result = call("federation", "create", *arguments.split())
    assert result.exit_code == 1 and "on the command line: --unlabeled" in result.stderr


def test_a_field_that_is_not_there_is_named(service: Service) -> None:
    arguments = "--name a --recipe fedavg --architecture mlp --input-shape 2 --classes 3 --round-option foo=1"
    assert "rounds.foo: there is no such field" in call("federation", "create", *arguments.split()).stderr


def test_spec_prints_a_body_that_create_takes(service: Service) -> None:
    service.on("GET", "/v1/federations/fed_1", FEDERATION)
    Path("spec.json").write_text(call("federation", "spec", "fed_1").stdout)
    service.on("POST", "/v1/federations", FEDERATION | {"join_token": "pst_join_1"}, 201)
    assert call("federation", "create", "--file", "spec.json", "--name", "again").exit_code == 0
    sent = json.loads(service.asked[-1].content)
    assert (sent["name"], sent["task"]["num_classes"], sent["recipe"]["name"]) == ("again", 10, "fedgo-small")


def test_a_device_hands_its_options_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    heard: dict[str, Any] = {}

    def run(connection: Connection, data: Path, **options: Any) -> RunReport:
        heard.update(options, connection=connection, data=data)
        return RunReport("finished", "cli_1", "ward-7", "fed_1", 120)

    monkeypatch.setattr("client_sdk.train_and_push", run, raising=False)
    monkeypatch.setenv("POTSTILL_DEVICE_TOKEN", "pst_dev_1")
    (tmp_path / "mine.npz").touch()
    arguments = "--federation fed_1 --data mine.npz --prototype large --capability memory_mb=2048 --capability gpu=true"
    arguments += " --direct --insecure-http"
    result = call("client", "run", "--url", "http://127.0.0.1:1", *arguments.split())
    assert result.exit_code == 0 and "loading PyTorch" in result.stderr and "ward-7" in result.stdout
    wanted = Connection("http://127.0.0.1:1", "pst_dev_1", insecure_http=True, direct=True)
    assert (heard["connection"], heard["prototype"]) == (wanted, "large")
    assert heard["capabilities"] == {"memory_mb": 2048, "gpu": True}


def test_a_federation_says_what_it_waits_for(service: Service) -> None:
    waiting = FEDERATION | {"waiting_for": "clients: a round opens with 2, and 1 is ready"}
    service.on("GET", "/v1/federations/fed_1", waiting)
    service.on("GET", "/v1/jobs", {"items": [], "next": None})
    assert "waiting for clients: a round opens with 2" in call("federation", "show", "fed_1").output


def test_a_federation_that_is_started_at_once_is_shown_as_started(service: Service) -> None:
    service.on("POST", "/v1/federations", {**FEDERATION, "state": "created", "join_token": "pst_join_1"})
    service.on("POST", "/v1/federations/fed_1/start", {**FEDERATION, "state": "preparing"})
    arguments = "--name a --recipe fedavg --architecture mlp --input-shape 2 --classes 3 --start --json"
    shown = json.loads(call("federation", "create", *arguments.split()).stdout)
    assert (shown["state"], shown["join_token"]) == ("preparing", "pst_join_1")


def test_a_device_says_where_its_model_is() -> None:
    report = RunReport("finished", "cli_1", "ward-7", "fed_1", 120, accuracy=0.5, model_path=Path("a/m.safetensors"))
    assert summary(report).splitlines() == [
        "federation finished; 0 updates of ward-7 taken; accuracy of the final model 50.0 %",
        "its model: a/m.safetensors",
    ]


def test_config_explains_what_other_places_read_too() -> None:
    output = call("config", "--explain").output
    assert "free disk space" in output and "POTSTILL_DATA_DIR" in output and "POTSTILL_COMMIT" in output


def test_config_shows_retention_as_it_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POTSTILL_RETENTION", '{"updates": 5}')
    assert json.loads(json.loads(call("config", "--json").output)["retention"])["updates"] == 5


@pytest.mark.parametrize(
    ("name", "said"),
    [("POTSTILL_THREAD", "did you mean POTSTILL_THREADS?"), ("POTSTILL_XYZ", "potstill config shows those there are")],
)
def test_a_variable_that_nothing_reads_is_named(monkeypatch: pytest.MonkeyPatch, name: str, said: str) -> None:
    monkeypatch.setenv(name, "8")
    monkeypatch.setenv("POTSTILL_MAX_CLIENTS_FILE", str(Path("models").absolute()))
    Path("models").write_text("7")
    result = call("config")
    assert result.exit_code == 0 and result.stderr == f"warning: nothing reads {name}; {said}\n"


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("POTSTILL_TRUSTED_PROXIES", "foo", "error: POTSTILL_TRUSTED_PROXIES: 'foo' does not appear"),
        ("POTSTILL_RETENTION", '{"updates": 5', "error: POTSTILL_RETENTION: expected JSON"),
        ("POTSTILL_RETENTION", '{"days": -1}', "error: POTSTILL_RETENTION: days: Input should be"),
        (
            "POTSTILL_RETENTION",
            '{"updates": true}',
            "error: POTSTILL_RETENTION: updates: Input should be a valid",
        ),
        ("POTSTILL_RETENTION", '{"days": 1, "days": 2}', "error: POTSTILL_RETENTION: the key 'days' is there twice"),
        ("POTSTILL_THREADS", "x", "error: POTSTILL_THREADS: Input should be a valid integer"),
    ],
)
def test_a_wrong_setting_is_named_alone(monkeypatch: pytest.MonkeyPatch, name: str, value: str, said: str) -> None:
    monkeypatch.setenv(name, value)
    assert call("config").stderr.startswith(said)


def test_tables_tell_times_in_utc(service: Service) -> None:
    made = {"id": "tok_1", "name": "wall", "role": "viewer", "created_at": "2026-01-01T01:30:00+01:00"}
    service.on("GET", "/v1/tokens", {"items": [made], "next": None})
    assert "2026-01-01 00:30:00Z" in call("token", "list").output


def test_a_private_device_says_what_it_has_spent() -> None:
    done = RoundReport(1, "rnd_1", 0.5, 0.5, 10, 120, 1.0, uploaded=True, epsilon=3.14159)
    assert "epsilon spent 3.14" in summary(RunReport("finished", "cli_1", "ward-7", "fed_1", 120, rounds=[done]))


def test_recipes_and_architectures_are_listed(service: Service) -> None:
    recipes = [item.model_dump(mode="json") for item in list_recipes()]
    service.on("GET", "/v1/recipes", recipes)
    assert {line.split()[0] for line in call("recipe", "list").output.splitlines()[1:]} >= {"fedavg", "fedgo"}
    shown = {line.split()[0]: line.split()[1:] for line in call("recipe", "show", "fedgo-small").output.splitlines()}
    assert shown["distil.weigh.link"] == ["double_sigmoid"]
    assert shown["distil.schedule.optimizer.betas"] == ["0.9,", "0.999"]
    assert shown["epochs"] == ["30"]
    unknown = call("recipe", "show", "nix")
    assert unknown.exit_code == exits.MISSING
    assert "no recipe is called 'nix'; there are " in unknown.output and "fedgo" in unknown.output
    service.on("GET", "/v1/architectures", [item.model_dump(mode="json") for item in built_in()])
    lines = {line.split()[0]: line for line in call("architecture", "list").output.splitlines()}
    assert "classifier" in lines["resnet-20"] and "common_head, projection, norm, groups" in lines["resnet-20"]
    assert "no" in lines["custom"].split()

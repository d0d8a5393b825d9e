"""What the documents tell people to type exists."""

import functools
import re
import shlex
from pathlib import Path

import pytest
from typer.main import get_command

from potstill.cli import app
from service.config import OTHERS, Settings

ROOT = Path(__file__).parents[2]
EXAMPLES = [*(ROOT / "examples").glob("*.md"), *(ROOT / "examples").glob("*/*.md")]
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md"), *EXAMPLES])
FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
ADR = ["Context", "Decision", "Consequences", "Rejected"]
BEFORE = re.compile(r"^(\w+=\S+ |docker compose exec \w+ )*(?=potstill )")  # environment, or where it runs


def commands(page: Path) -> list[str]:
    """Every `potstill …` line of the page's fenced blocks, with continued lines joined."""
    found = []
    for _, block in FENCE.findall(page.read_text()):
        for line in re.sub(r"\\\n\s*", " ", block).splitlines():
            line = line.strip().removeprefix("$ ")
            if BEFORE.match(line):
                found.append(re.sub(r"\s+([|&;]|>\s).*$", "", BEFORE.sub("", line)))  # without pipe, redirect
    return found


ALL = [(page.relative_to(ROOT).as_posix(), line) for page in PAGES for line in commands(page)]


def test_there_is_something_to_check() -> None:
    assert len(ALL) >= 8


@pytest.mark.parametrize(("page", "line"), ALL, ids=[f"{page}: {line[:50]}" for page, line in ALL])
def test_documented_command_parses(page: str, line: str) -> None:
    words = shlex.split(line, comments=True)[1:]
    command = get_command(app)
    context = command.make_context("potstill", words, resilient_parsing=False) if words else None
    while context is not None and hasattr(context.command, "resolve_command"):
        rest = [*context._protected_args, *context.args]  # click 8's own store of words not yet parsed
        if not rest:
            break
        _, inner, rest = context.command.resolve_command(context, rest)
        assert inner is not None
        context = inner.make_context(inner.name, rest, parent=context)
    assert context is not None


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_named_in_prose_exist_with_their_options(page: Path) -> None:
    for named in re.findall(r"`potstill ([a-z][^`<]*)`", FENCE.sub("", page.read_text())):
        command, words = get_command(app), named.split()
        while words and words[0] in getattr(command, "commands", {}):
            command = command.commands[words.pop(0)]  # type: ignore[attr-defined]
        assert not hasattr(command, "commands"), f"potstill {named}"
        options = {option for parameter in command.params for option in parameter.opts}
        assert {word for word in words if word.startswith("--")} <= options, f"potstill {named}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_command_hides_in_an_indented_block(page: Path) -> None:
    prose = FENCE.sub("", page.read_text())
    assert not re.findall(r"(?<=\n\n) {4,}\S.*", prose)


def test_every_setting_is_in_a_document_and_nothing_else() -> None:
    text = "".join(page.read_text() for page in PAGES)
    told = set(re.findall(r"POTSTILL_[A-Z0-9_]*[A-Z0-9]", text)) - {"POTSTILL_TEST_S3"}
    settings = {f"POTSTILL_{name.upper()}" for name in Settings.model_fields} | OTHERS.keys()
    assert not settings - told, "in no document"
    assert not told - settings - {f"{name}_FILE" for name in settings}, "in no code"


def test_readme_has_the_two_commands() -> None:
    blocks = "".join(block for _, block in FENCE.findall((ROOT / "README.md").read_text()))
    assert re.search(r"^make demo\b", blocks, re.MULTILINE)
    assert re.search(r"^make test\b", blocks, re.MULTILINE)


def test_python_examples_compile() -> None:
    sources = [
        (page.name, block) for page in PAGES for kind, block in FENCE.findall(page.read_text()) if kind == "python"
    ]
    assert sources
    for name, block in sources:
        compile(block, name, "exec")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)", page.read_text()):
        if not re.match(r"[a-z]+:", target):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_every_problem_kind_is_explained() -> None:
    from contract.wire.problems import KINDS

    text = (ROOT / "docs" / "problems.md").read_text()
    missing = [kind for kind in KINDS if f"`{kind}`" not in text]
    assert not missing


@pytest.mark.parametrize("page", sorted((ROOT / "docs" / "adr").glob("*.md")), ids=lambda page: page.name)
def test_decisions_name_what_is_there(page: Path) -> None:
    """What was rejected, and what others do, need not be there."""
    text = page.read_text()
    decided = text[text.index("Decision") :].partition("Rejected")[0]
    named = [token for token in re.findall(r"`([^`\n]+)`", decided) if re.fullmatch(r"[\w./]+(\(\))?", token)]
    paths = [token for token in named if "/" in token[1:] and not token.startswith("/")]
    assert [path for path in paths if not (ROOT / path).exists()] == []
    names = {part for token in set(named) - set(paths) for part in re.split(r"\W+", token) if part}
    assert names <= words_of_the_code()


def test_decisions_are_numbered_once_and_one_after_the_other() -> None:
    pages = sorted((ROOT / "docs" / "adr").glob("*.md"))
    assert [page.name[:5] for page in pages] == [f"{number:04}-" for number in range(1, len(pages) + 1)]
    for number, page in enumerate(pages, start=1):
        title, _, rest = page.read_text().partition("\n")
        assert title.startswith(f"# {number}. "), page.name
        assert rest.startswith("\nAccepted, "), page.name
        heads = re.findall(r"^## (\w+)", rest, re.MULTILINE)
        assert heads in (ADR, ADR[:-1]), page.name


def test_decisions_are_named_by_their_numbers() -> None:
    for page in PAGES:
        for number, path in re.findall(r"\[ADR (\d+)\]\(\S*?adr/(\d+)", page.read_text()):
            assert int(number) == int(path), f"{page.name} calls {path} ADR {number}"


@functools.cache
def words_of_the_code() -> set[str]:
    files = [ROOT / name for name in ("pyproject.toml", "Makefile", "Dockerfile", "docker-compose.yml")]
    kinds = (".py", ".yaml", ".conf", ".html", ".js")
    for folder in ("contract", "client_sdk", "service", "worker", "potstill", "migrations", "tests", "tools", "deploy"):
        files += [file for file in (ROOT / folder).rglob("*") if file.suffix in kinds]
    return {word for file in files for word in re.findall(r"\w+", file.read_text())}

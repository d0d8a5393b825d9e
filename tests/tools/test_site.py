"""The documents as a site: built without a warning, whole without another host, searched without a server."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tools.site.__main__ import ROOT, main

pytest.importorskip("sphinx", reason="NO SPHINX HERE: the documents are not built as a site")
CHROMIUM = shutil.which("chromium")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site") / "made"
    command = [sys.executable, "-m", "tools.site", "--output", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=170)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    return folder


def test_every_document_has_its_page_in_the_sidebar(site: Path) -> None:
    first = (site / "index.html").read_text()
    tree = first[first.index('class="sidebar-tree"') :].partition("</aside>")[0]
    for page in [*(ROOT / "docs").glob("**/*.md"), *(ROOT / "examples").glob("*/README.md"), ROOT / "CONTRIBUTING.md"]:
        name = page.relative_to(ROOT).with_suffix(".html").as_posix()
        assert (site / name).is_file()
        assert f'href="{name}"' in tree, f"a row of docs/README.md leads to {page.name}"


def test_nothing_is_loaded_from_another_host(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 60
    for page in pages:
        loading = re.findall(r"<(?:script|link|img|iframe|source|video)\b[^>]*>", page.read_text())
        assert [tag for tag in loading if re.search(r"(?:src|href)=[\"']?(?:https?:)?//", tag)] == [], page.name
    for sheet in site.rglob("*.css"):
        assert re.findall(r"(?:@import|url\()\s*[\"']?(?:https?:)?//", sheet.read_text()) == [], sheet.name


@pytest.mark.skipif(CHROMIUM is None, reason="NO CHROMIUM HERE: the site's search is not tested")
def test_it_is_searched_from_the_folder(site: Path) -> None:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page, elsewhere, console = browser.new_page(viewport={"width": 390, "height": 844}), list[str](), list[str]()
        page.on("request", lambda request: elsewhere.append(request.url) if request.url.startswith("http") else None)
        page.on("console", lambda message: console.append(message.text))
        for name in ("index", "docs/recipes", "docs/evidence", "examples/README"):
            page.goto((site / f"{name}.html").as_uri())
            assert page.evaluate("document.documentElement.scrollWidth") <= 390, f"{name} is wider than a phone"
        page.goto((site / "search.html").as_uri() + "?q=heartbeat_seconds")
        page.wait_for_selector("#search-results li a")
        assert page.locator("#search-results li a", has_text="Rounds").count()
        browser.close()
    assert (elsewhere, console) == ([], [])


def test_a_foreign_folder_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(SystemExit, match="choose another with --output"):
        main(["--output", str(tmp_path)])
    assert (tmp_path / "thesis.txt").exists()

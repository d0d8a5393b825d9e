"""Build the documents as a site of plain files: ``python -m tools.site`` writes `site/`, of which
`index.html` is the first page.

A warning fails the build. Nothing in the pages is loaded from another host, and the search works without a server.
"""

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]


def main(arguments: list[str] | None = None) -> int:
    """Build the site; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tools.site", description=__doc__)
    parser.add_argument("--output", type=Path, default=ROOT / "site", help="folder for the pages")
    output: Path = parser.parse_args(arguments).output.resolve()
    if output.is_dir() and any(output.iterdir()) and not (output / "searchindex.js").is_file():
        sys.exit(f"{output} is not empty and no site; choose another with --output")
    try:
        from sphinx.cmd.build import build_main
    except ModuleNotFoundError as error:
        sys.exit(f"{error.name} is not installed; pip install -c constraints.txt -e '.[docs]'")

    shutil.rmtree(output, ignore_errors=True)
    options = ["-W", "--keep-going", "-q", "-b", "html", "-c", str(Path(__file__).parent)]
    with tempfile.TemporaryDirectory() as parsed:
        code: int = build_main([*options, "-d", parsed, str(ROOT), str(output)])
    if code == 0:
        shutil.copyfile(output / "README.html", output / "index.html")
    return code


if __name__ == "__main__":
    sys.exit(main())

"""One replay: the recorded job is done again by the worker's computing process, and every result is compared."""

import hashlib
import json
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from potstill.console import CliError
from potstill.replay.compare import difference
from potstill.replay.computing import Computers, OnProgress
from potstill.replay.publication import Publication
from potstill.replay.sources import Source
from potstill.storage.files import digest_of

Verdict = Literal["equal", "differs", "missing", "damaged"]


@dataclass(frozen=True)
class Compared:
    """One file that was made again."""

    what: str
    name: str
    verdict: Verdict
    detail: str = ""


@dataclass
class Report:
    """What came out of a replay.

    Attributes:
        title: what was replayed.
        results: each file that was made again, or the inputs that are missing or damaged.
        notes: in what this machine or code differs from what made the original.
        packages: those of them that are about packages which add choices or networks; told also of equal bytes.
    """

    title: str
    results: list[Compared] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    packages: list[str] = field(default_factory=list)

    @property
    def verdict(self) -> Verdict:
        """The worst of the results."""
        found = {result.verdict for result in self.results}
        worst: tuple[Verdict, ...] = ("damaged", "missing", "differs")
        return next((verdict for verdict in worst if verdict in found), "equal")


def replay(
    publication: Publication, source: Source, computers: Computers, report: OnProgress = lambda *_: None
) -> Report:
    """Do a job again and compare.

    Raises:
        CliError: the document is damaged or newer than this program, or the job fails.
    """
    document = _checked(publication)
    made = Report(publication.title)
    missing = [each for each in document["inputs"] if not source.has(each["digest"])]
    if missing:
        made.results = [Compared("input", _called(each), "missing", each["digest"]) for each in missing]
        return made
    outputs = document["outputs"]
    wanted = set(outputs["models"].values()) | set((outputs["state"] or {}).values())
    inputs = {each["digest"] for each in document["inputs"]}
    with tempfile.TemporaryDirectory(prefix="potstill-replay-") as folder, source.hold(inputs | wanted) as files:
        wrong = {digest for digest, path in files.items() if digest_of(path) != digest}
        if wrong & inputs:
            bad = [each for each in document["inputs"] if each["digest"] in wrong]
            made.results = [Compared("input", _called(each), "damaged", each["digest"]) for each in bad]
            return made
        spec = _spec(document, files) | {"output_dir": folder}
        result = computers.compute(spec, document["environment"], document.get("part"), report)
        made.packages = _versions("plugins", document["environment"], result["origin"]["environment"])
        made.notes = [*_notes(document, result["origin"]), *made.packages]
        made.results = _compare("model", outputs["models"], result["models"], files, wrong)
        made.results += _compare("state", outputs["state"] or {}, result["state"] or {}, files, wrong)
    return made


def _checked(publication: Publication) -> dict[str, Any]:
    found = f"sha256-{hashlib.sha256(publication.text.encode()).hexdigest()}"
    if found != publication.digest:
        raise CliError(f"{publication.title}: the document is damaged: its digest is {found}")
    try:
        document = publication.document
        if document["version"] != 1:
            raise CliError(f"{publication.title}: a document of version {document['version']}; update this program")
        return document
    except (ValueError, KeyError, AssertionError) as error:
        raise CliError(f"{publication.title}: no document of provenance") from error


def _called(known: dict[str, Any]) -> str:
    place = ".".join(str(part) for part in known["place"])
    who = known.get("client") or known.get("name") or known.get("prototype")
    return f"{known.get('kind', 'file')} {who or ''} ({place})".replace("  ", " ")


def _spec(document: dict[str, Any], files: dict[str, Path]) -> dict[str, Any]:
    """Return the job's description with this machine's paths in the places of the digests."""
    spec: dict[str, Any] = json.loads(json.dumps(document["spec"]))
    spec.pop("packaged", None)  # was looked for before devices trained; the first models do not hang on it
    for known in document["inputs"]:
        *path, last = known["place"]
        inner: Any = spec
        for part in path:
            inner = inner[part]
        inner[last] = str(files[known["digest"]].absolute())
    return spec


def _compare(
    what: str, wanted: dict[str, str], made: dict[str, str], files: dict[str, Path], wrong: set[str]
) -> list[Compared]:
    results = []
    for name, digest in wanted.items():
        if name not in made:
            results.append(Compared(what, name, "differs", "it was not made again"))
            continue
        path = Path(made[name])
        found = digest_of(path)
        if digest in wrong:
            again = "as it was published" if found == digest else "to other bytes than were published"
            results.append(Compared(what, name, "damaged", f"the stored file is; it was made again, {again}"))
        elif found == digest:
            results.append(Compared(what, name, "equal", digest))
        elif digest in files:
            results.append(Compared(what, name, "differs", difference(files[digest], path)))
        else:
            results.append(Compared(what, name, "differs", "the original is removed, so where cannot be said"))
    extra = [Compared(what, name, "differs", "it was not made then") for name in made if name not in wanted]
    return results + extra


def _notes(document: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """Return what is not as it was when the original was made."""
    notes = []
    for name in ("version", "digest"):
        was, is_ = document["code"].get(name), now["code"].get(name)
        if was != is_:
            notes.append(f"code {name}: {was} then, {is_} now")
    then, here = document["environment"], now["environment"]
    for name in ("python", "machine", "device", "device_name", "threads"):
        if then.get(name) != here.get(name):
            notes.append(f"{name}: {then.get(name)} then, {here.get(name)} now")
    return [*notes, *_versions("libraries", then, here)]


def _versions(group: str, then: dict[str, Any], here: dict[str, Any]) -> list[str]:
    """Return what of a group of packages had another version."""
    before, now = then.get(group, {}), here.get(group, {})
    names = sorted(name for name in {*before, *now} if before.get(name) != now.get(name))
    return [f"{name}: {before.get(name)} then, {now.get(name)} now" for name in names]

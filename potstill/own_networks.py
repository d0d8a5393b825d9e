"""Networks that are documents, for commands that compute on this machine: of a file, or by name of the service."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from contract.networks import checks, shelf
from contract.networks.document import PREFIX, canonical, digest_of, name_of
from contract.networks.errors import NetworkError
from potstill.connection import operator
from potstill.console import CliError

_DIGEST = f"{PREFIX}sha256-"


def gather(tree: dict[str, Any], folder: Path) -> None:
    """Have every network at hand that an experiment names, and give it the name that holds its digest.

    ``net:FILE`` is a document, with its first weights beside it as ``.safetensors``; ``net:NAME`` is one that the
    service has. Both are kept in the folder, so that the experiment can go on without them.

    Raises:
        CliError: there is no such file or network, or it is none.
    """
    for place, key, value in list(_named(tree)):
        place[key] = _from_folder(value, folder) if value.startswith(_DIGEST) else _kept(value, folder)


def _named(tree: Any) -> Iterator[tuple[Any, Any, str]]:
    for key, value in tree.items() if isinstance(tree, dict) else enumerate(tree):
        if isinstance(value, dict | list):
            yield from _named(value)
        elif isinstance(value, str) and str(key).endswith("architecture") and value.startswith(PREFIX):
            yield tree, key, value


def _from_folder(name: str, folder: Path) -> str:
    document = folder / f"{name.removeprefix(PREFIX)}.json"
    if not document.exists():
        raise CliError(f"{name}: its document is not in {folder}; name its file: net:FILE")
    return _placed(name, document)


def _kept(value: str, folder: Path) -> str:
    named = Path(value.removeprefix(PREFIX))
    folder.mkdir(parents=True, exist_ok=True)
    fetched = folder / "new.json"
    if named.is_file():
        shutil.copyfile(named, fetched)
        if named.with_suffix(".safetensors").is_file():
            shutil.copyfile(named.with_suffix(".safetensors"), fetched.with_suffix(".safetensors"))
    else:
        _fetch(value, fetched)
    try:
        text = canonical(checks.read(fetched.read_bytes()))
    except NetworkError as error:
        raise CliError(f"{named}: {error}") from None
    name, document = name_of(digest_of(text)), folder / f"{digest_of(text)}.json"
    document.write_bytes(text)
    if fetched.with_suffix(".safetensors").exists():
        fetched.with_suffix(".safetensors").replace(document.with_suffix(".safetensors"))
    fetched.unlink()
    return _placed(name, document)


def _fetch(value: str, target: Path) -> None:
    """Fetch a network that is registered, and its first weights."""
    with operator(None, None) as client:
        network = client.network(value)
        client.download_network(network.id, target, digest=network.digest)
        if network.initial_model is not None:
            client.download_first_weights(network.id, target.with_suffix(".safetensors"))


def _placed(name: str, document: Path) -> str:
    weights = document.with_suffix(".safetensors")
    shelf.place(name, shelf.Files(document, weights if weights.exists() else None))
    return name

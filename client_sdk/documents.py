"""Networks that are documents, on a device: fetched when something names one, and kept in the device's folder."""

from pathlib import Path

from client_sdk.client import Client
from contract.networks import shelf
from contract.networks.document import PREFIX
from contract.private import private_folder


def is_document(architecture: str) -> bool:
    """Whether an architecture is a document."""
    return architecture.startswith(PREFIX)


def have(client: Client, folder: Path, architecture: str, *, weights: bool = False) -> None:
    """See that a network can be built here by its name; one of the catalogue always can.

    Args:
        client: with the device's token.
        folder: the device's.
        architecture: as an assignment names it.
        weights: its first weights are needed, too.

    Raises:
        PotstillError: it cannot be fetched.
    """
    if not is_document(architecture) or shelf.has(architecture, weights=weights):
        return
    digest = architecture.removeprefix(PREFIX)
    place = private_folder(folder / "networks")
    document = client.download_network(architecture, place / f"{digest}.json", digest=digest)
    first = place / f"{digest}.safetensors"
    if weights:
        client.download_first_weights(architecture, first)
    shelf.place(architecture, shelf.Files(document, first if first.exists() else None))

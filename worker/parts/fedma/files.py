"""FedMA on clients' files."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from contract.chains import Chain
from contract.tensors import Array, Header, TensorError, TensorFile, compare
from worker.parts.blocks import Source, model_writer, narrow
from worker.parts.errors import PartError
from worker.parts.fedma.matching import Prior
from worker.parts.fedma.networks import Order, fuse_layers


def fuse_files(
    sources: Sequence[Source],
    output: Path,
    chain: Chain,
    base: Header,
    *,
    prior: Prior | None = None,
    sweeps: int = 5,
    frozen: int = 0,
    label_counts: Mapping[str, Array] | None = None,
    on_source: Callable[[], None] = lambda: None,
) -> list[dict[str, Order]]:
    """Write the global model and return, layer by layer, how each client's units lie in it.

    Memory: the m clients' tensors of one layer, and one model.

    Args:
        sources: the clients' files; any order gives the same bytes.
        output: file to write, with the base's tensors.
        chain: of the base.
        base: header of the model they started from.
        prior, sweeps, frozen, label_counts: see `fuse_layers`.
        on_source: called before each reading of a source; what it raises ends the job.

    Raises:
        PartError: as `fuse_layers`; schema_mismatch, when a file or the chain is not of the base's network.
    """
    try:
        chain.check({name: info.shape for name, info in base.tensors.items()})
    except ValueError as error:
        raise PartError("schema_mismatch", str(error)) from error
    paths = {source.name: source.path for source in sources}
    for source in sources:
        if source.weight > 0:
            _check(source, base)

    def read(client: str, name: str) -> Array:
        on_source()
        with TensorFile(paths[client]) as file:
            return file.read(name)

    weights = {source.name: source.weight for source in sources}
    model: dict[str, Array] = {}
    orders = []
    layers = fuse_layers(chain, read, weights, prior=prior, sweeps=sweeps, frozen=frozen, label_counts=label_counts)
    for layer in layers:
        for name, values in layer.tensors.items():
            info = base.tensors[name]
            model[name] = narrow(name, values.reshape(info.shape), info.dtype)
        orders.append(layer.orders)
    with model_writer(output, base) as writer:
        for name in base.tensors:
            writer.write(name, model[name])
    return orders


def _check(source: Source, base: Header) -> None:
    try:
        with TensorFile(source.path) as file:
            compare(file.header, base)
    except TensorError as error:
        raise PartError("schema_mismatch", f"{source.name!r}: {error.detail}") from error

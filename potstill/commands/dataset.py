"""`potstill dataset`: the service's own data, to distil on and to test on."""

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from contract.wire.rounds import Dataset
from potstill.connection import Token, Url, operator
from potstill.console import CliError, Group, Json, out, show_list, show_one

if TYPE_CHECKING:
    from numpy import ndarray

app = typer.Typer(
    cls=Group, no_args_is_help=True, help="Server data sets: unlabelled to distil on, labelled to test on."
)
_ALIASES = {"inputs": ("inputs", "x", "X", "images"), "labels": ("labels", "y", "Y")}


def _load_npz(file: Path) -> dict[str, "ndarray"]:
    """Return `inputs` and, if there, `labels` of an .npz file, as the service wants them.

    Raises:
        CliError: not readable, no array of inputs, or labels that are no class numbers.
    """
    import numpy as np

    try:
        with np.load(file, allow_pickle=False) as data:
            found = {
                role: data[name] for role, names in _ALIASES.items() for name in reversed(names) if name in data.files
            }
            there = ", ".join(data.files)
    except (OSError, ValueError, EOFError) as error:
        raise CliError(f"cannot read {file}: {error}") from error
    if "inputs" not in found:
        raise CliError(
            f"{file} has the arrays {there}; name the samples 'inputs' (or x) and the labels 'labels' (or y)"
        )
    inputs = found["inputs"]
    halves = inputs.dtype == np.float16
    arrays = {"inputs": inputs.astype(np.float32 if inputs.dtype.kind == "f" and not halves else inputs.dtype)}
    if "labels" in found:
        try:
            arrays["labels"] = _labels(found["labels"], len(inputs) if inputs.ndim else 0)
        except ValueError as error:
            raise CliError(f"{file}: {error}") from None
    return arrays


def _labels(labels: "ndarray", samples: int) -> "ndarray":
    """Return labels as the service takes them: class numbers [N] as int64, of several a sample whole or floats.

    Values with fractions, one a sample, are those of a regression of one number: [N, 1].

    Raises:
        ValueError: a label that is neither.
    """
    import numpy as np

    from contract.labels import class_numbers

    finite = labels.dtype.kind == "f" and np.isfinite(labels).all()
    if labels.shape == (samples,) and finite and (labels != np.floor(labels)).any():
        return _values(labels[:, None])
    if labels.ndim < 2:
        return class_numbers(labels, samples)
    if labels.dtype.kind == "f":
        return _values(labels)
    return labels.astype(np.uint8 if labels.dtype.kind == "b" or labels.dtype == np.uint8 else np.int64)


def _values(labels: "ndarray") -> "ndarray":
    """Return floats as float32, or as float64 where that alone tells whole numbers from fractions."""
    import numpy as np

    with np.errstate(over="ignore"):
        narrow = labels.astype(np.float32)
    whole = labels == np.floor(labels)
    same = (whole == (narrow == np.floor(narrow))) & (~whole | (narrow == labels))
    return narrow if same[np.isfinite(narrow)].all() else labels.astype(np.float64)


def _remark(file: Path) -> str:
    """Return what looks like a mistake in the labels of images, or ""."""
    from contract.targets import black_and_white
    from contract.tensors import TensorError, TensorFile

    try:
        with TensorFile(file) as opened:
            info = opened.header.tensors.get("labels")
            return black_and_white(opened.read("labels")) if info is not None and len(info.shape) > 2 else ""
    except TensorError:  # the service says what is wrong with the file
        return ""


def as_safetensors(file: Path, folder: Path) -> Path:
    """Return `file` as a safetensors file: itself, or a conversion of an .npz file in `folder`."""
    if not file.is_file():
        raise CliError(f"there is no file {file}")
    if file.suffix == ".safetensors":
        return file
    if file.suffix == ".npz":
        from contract.tensors import write_file

        target = folder / "dataset.safetensors"
        write_file(target, _load_npz(file))
        return target
    raise CliError(
        f"{file.name}: only .safetensors and .npz are taken (numpy.savez(file, inputs=x, labels=y) writes one)"
    )


@app.command()
def add(
    name: Annotated[str, typer.Argument(help="Name under which federations refer to it.")],
    file: Annotated[
        Path, typer.Argument(help=".npz or .safetensors with 'inputs' [N, ...] and optional 'labels' [N].")
    ],
    url: Url = None,
    token: Token = None,
    as_json: Json = False,
) -> None:
    """Upload a data set to the service."""
    with tempfile.TemporaryDirectory() as folder, operator(url, token) as client:
        sent = as_safetensors(file, Path(folder))
        if remark := _remark(sent):
            typer.echo(f"warning: {remark}", err=True)
        made = client.add_dataset(name, sent)
    show_one(made, as_json, _tell)


def _tell(made: Dataset) -> None:
    kind = "labelled" if made.labeled else "unlabelled"
    out().print(f"added {made.name}  {made.id}  ({made.num_samples} {kind} samples of {made.shape} {made.dtype})")


@app.command("list")
def list_(url: Url = None, token: Token = None, as_json: Json = False) -> None:
    """List data sets."""
    with operator(url, token) as client:
        items = list(client.each(client.datasets))
    show_list(
        items,
        as_json,
        ["name", "id", "samples", "shape", "dtype", "labelled", "bytes"],
        lambda d: [d.name, d.id, d.num_samples, d.shape, d.dtype, d.labeled, d.size],
    )


@app.command()
def remove(
    dataset: Annotated[str, typer.Argument(help="A data set's id or name.")], url: Url = None, token: Token = None
) -> None:
    """Delete a data set that no unfinished federation uses."""
    with operator(url, token) as client:
        ids = {item.name: item.id for item in client.each(client.datasets)}
        client.delete_dataset(ids.get(dataset, dataset))
    out().print(f"removed {dataset}")

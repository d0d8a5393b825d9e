"""A document of a module, on its author's machine: traced in both modes, and held against the module itself."""

import copy
import inspect
import io
import linecache
import logging
import traceback
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
from torch import Tensor, fx, nn

from contract.networks import checks
from contract.networks.document import Document, Input, Role, canonical, parse
from contract.networks.document import Tensor as Described
from contract.networks.errors import NetworkError
from contract.nn.graphs import comparing, shapes
from contract.nn.graphs.encoding import Encoder
from contract.nn.outputs import described, meant

_BATCH = 5
_LARGEST_BATCH = 4096
_INNER = "inner."


@dataclass(frozen=True)
class Form:
    """What a network is for.

    Attributes:
        input: shape and dtype of one sample, or of a generator's noise.
        role: classifier, discriminator or generator.
        head: path of the part that reads the features, such as ``fc``.
        features: path of the part that makes them, where no part is the head.
        gives: what a discriminator ends in.
    """

    input: Input
    role: Role = "classifier"
    head: str | None = None
    features: str | None = None
    gives: str = "score"


def export(module: nn.Module, input_shape: Sequence[int], dtype: str = "float32", **form: Any) -> Document:
    """Return the document of a module.

    The module stays as it is. It is traced by `torch.export` in training and in evaluation mode for any size of batch;
    then module and document train a step side by side, and a document whose outputs, gradients or buffers differ is
    refused, naming the tensor.

    Args:
        module: maps [B, *input_shape] to one tensor [B, ...], or to what calls it `logits` (`contract.nn.outputs`).
        input_shape: of one sample.
        dtype: float32, or int64 for token ids.
        form: the other attributes of `Form`; without `head` and `features`, a module that has ``features(x)`` and a
            part ``head`` has these named.

    Raises:
        NetworkError: why there is none, with the author's line where one is at fault.
    """
    wanted = Form(Input(shape=list(input_shape), dtype=dtype), **form)  # type: ignore[arg-type]
    _check_signature(module)
    module = copy.deepcopy(module).cpu()
    document = _document(module, wanted)
    comparing.check(module, document)
    return document


def _document(module: nn.Module, form: Form) -> Document:
    state = _tensors(module)
    traced = _Named(module, form) if _is_named(module, form) else _Plain(module)
    encoder = Encoder({each.name: each for each in state}, _INNER)
    graphs, shape = {}, []
    for mode in ("train", "eval"):
        exported, output = _traced(traced, form.input, mode == "train")
        graphs[mode] = encoder.graph(exported)
        shape = list(output.shape[1:])
    document = Document(
        role=form.role,
        input=form.input,
        output=shape,
        gives=form.gives,  # type: ignore[arg-type]
        tensors=state,
        constants=list(encoder.constants.values()),
        train=graphs["train"],
        eval=graphs["eval"],
    )
    document = parse(canonical(document))  # as the service will read it
    checks.check(document)
    shapes.check(document)
    return document


def _check_signature(module: nn.Module) -> None:
    """Refuse a forward that wants more than the samples."""
    parameters = list(inspect.signature(module.forward).parameters.values())
    plain = [each for each in parameters if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)]
    more = [each.name for each in parameters if each.default is each.empty and each in [*plain[1:]]]
    more += [each.name for each in parameters if each.default is each.empty and each.kind is each.KEYWORD_ONLY]
    if more or not plain:
        what = f"also wants {', '.join(map(repr, more))}" if more else "reads nothing"
        remedy = "give the others defaults"
        if more:
            remedy += "; where they are inputs too, average it without a document: 'custom', and model= on devices"
        raise NetworkError("forward", f"{what}; a network reads one tensor [B, ...]: {remedy}")


def _tensors(module: nn.Module) -> list[Described]:
    """Return the state's tensors in its order."""
    parameters = dict(module.named_parameters(remove_duplicate=False))
    first: dict[int, str] = {}
    found = []
    for name, value in module.state_dict(keep_vars=True).items():
        if not isinstance(value, Tensor):
            raise NetworkError(
                "state", f"{name!r} is a {type(value).__name__} and no tensor; leave it out of the state"
            )
        kind = ("parameter" if value.requires_grad else "frozen") if name in parameters else "buffer"
        known = first.setdefault(id(value), name)
        found.append(
            Described(
                name=name,
                dtype=str(value.dtype).removeprefix("torch."),  # type: ignore[arg-type]
                shape=list(value.shape),
                kind=kind,  # type: ignore[arg-type]
                same_as=None if known == name else known,
            )
        )
    return found


# ----------------------------------------------------------------------------------------------------------- features
class _Plain(nn.Module):
    """Gives the tensor that a module means by what it returns."""

    def __init__(self, inner: nn.Module):
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        return _meant(self.inner(x))


def _meant(returned: Any) -> Tensor:
    found = meant(returned)
    if found is None:
        wanted = "return one tensor [B, ...], or an object or dict that calls it 'logits'"
        raise NetworkError("forward", f"returns {described(returned)}; {wanted}")
    return found


class _Named(nn.Module):
    """Gives a module's output, and what one of its parts reads or makes."""

    def __init__(self, inner: nn.Module, form: Form):
        super().__init__()
        self.inner = inner
        self._path, self._reads = (form.features, False) if form.features else (form.head or "head", True)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        seen: list[Any] = []
        assert self._path is not None
        part = self.inner.get_submodule(self._path)
        if self._reads:
            handle = part.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
        else:
            handle = part.register_forward_hook(lambda _, args, made: seen.append(made))
        try:
            output = _meant(self.inner(x))
        finally:
            handle.remove()
        if len(seen) != 1:
            raise NetworkError(
                "features", f"{self._path!r} runs {len(seen)} times in one pass; name a part that runs once"
            )
        return output, seen[0]


def _is_named(module: nn.Module, form: Form) -> bool:
    path = form.features or form.head
    if path is None:
        return callable(getattr(module, "features", None)) and isinstance(getattr(module, "head", None), nn.Module)
    try:
        module.get_submodule(path)
    except AttributeError:
        known = ", ".join(name for name, _ in module.named_children())
        field = "features" if form.features else "head"
        raise NetworkError(field, f"the module has no part {path!r}; there are {known or 'none'}") from None
    return True


# ------------------------------------------------------------------------------------------------------------ tracing
def _traced(module: nn.Module, read: Input, training: bool) -> tuple[fx.GraphModule, Tensor]:
    """Return what `torch.export` writes down of a mode, and the output for a batch."""
    inputs = comparing.samples(read, _BATCH, 2)
    sizes = ({0: torch.export.Dim("batch", min=1, max=_LARGEST_BATCH)},)
    module.train(training)
    doing = "forward failed"
    try:
        with warnings.catch_warnings(), torch.random.fork_rng(devices=[]), _quiet():
            warnings.simplefilter("ignore")
            output = copy.deepcopy(module)(inputs)
            doing = "torch.export cannot trace it"
            exported = torch.export.export(module, (inputs,), dynamic_shapes=sizes, strict=False).module()
    except NetworkError:
        raise
    except Exception as error:  # the author's code runs
        raise NetworkError("forward", _told(error, doing)) from error
    output = output[0] if isinstance(output, tuple) and isinstance(module, _Named) else output
    if not isinstance(output, Tensor) or output.ndim == 0 or len(output) != _BATCH:
        raise NetworkError("forward", f"returns {described(output)} for {_BATCH} samples; return one tensor [B, ...]")
    assert isinstance(exported, fx.GraphModule)
    return exported, output


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep to itself what torch logs and prints of a graph that it cannot trace: the refusal says it with the line."""
    logger = logging.getLogger("torch")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        with redirect_stderr(io.StringIO()):
            yield
    finally:
        logger.setLevel(before)


def _told(error: Exception, doing: str) -> str:
    """Return what tracing tells of an error, with the last line of it that is neither torch's nor ours."""
    lines = [line.strip() for line in str(error).strip().splitlines() if line.strip()]
    lines = [line for line in lines if "specialized" in line] or lines or [type(error).__name__]
    said, place = lines[0][:300], _line(error.__traceback__)
    remedy = "what forward does must not hang on values, nor on the size of a batch: take x.shape[0] for it, not len(x)"
    remedy = f"; {remedy} (docs/architectures.md)" if "trace" in doing else ""
    return f"{doing}{place}: {said}{remedy}"


def _line(trace: TracebackType | None) -> str:
    ours = (str(Path(torch.__file__).parent), str(Path(__file__).parent))
    frames = [frame for frame in traceback.extract_tb(trace) if not frame.filename.startswith(ours)]
    frames = [frame for frame in frames if frame.name == "forward" or frame is frames[-1]]
    if not frames:
        return ""
    last = frames[-1]
    source = linecache.getline(last.filename, last.lineno or 0).strip()
    return f" at {last.filename}:{last.lineno} ({last.name}: {source})"

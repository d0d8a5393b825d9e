"""Rows of the catalogue of architectures, and what can be asked of one."""

import re
from collections.abc import Iterable, Mapping
from typing import Any, get_args

from pydantic import ValidationError
from pydantic_core import to_json

from contract.architecture_inputs import Reads as Reads
from contract.architecture_inputs import check_edges, check_form
from contract.architecture_options import DiscriminatorOptions, Options, Output
from contract.architecture_options import OptionsError as OptionsError
from contract.bodies import stored
from contract.faults import faults_of
from contract.networks import shelf
from contract.networks.document import Role as Role
from contract.networks.facts import Facts
from contract.tasks import KINDS, OF_VECTORS, TaskKind

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,99}")
_BUILDER = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")


class Entry:
    """One row of the catalogue.

    Args:
        builder: "package.module:function" with function(options, task) -> torch.nn.Module; only rows of other packages
            have one, potstill's own are found by `contract.nn.registry`.
        server_side: whether the service can run the network.
        reads: what its samples are.
        batch_norm: whether it has BatchNorm whatever its options say.
        normalises: whether layers normalise, where neither of those tells; None where nobody knows.
        private: whether a device can train it by DP-SGD where it has no BatchNorm.
        edge: the one height and width of image that it reads or makes; None where others do too.
        multiple: what height and width must be multiples of.
        tasks: the kinds of task of a `classifier`: what it ends in.

    Raises:
        ValueError: a name, role or builder that is not of the form above.
    """

    def __init__(
        self,
        name: str,
        role: Role,
        options: type[Options],
        summary: str,
        *,
        server_side: bool = True,
        builder: str | None = None,
        reads: Reads = "anything",
        batch_norm: bool = False,
        normalises: bool | None = None,
        private: bool = True,
        edge: int | None = None,
        multiple: int = 1,
        tasks: Iterable[TaskKind] = OF_VECTORS,
    ):
        if not _NAME.fullmatch(name):
            raise ValueError(f"architecture name {name!r}: use lower-case letters, digits and . _ - (at most 100)")
        if role not in get_args(Role):
            raise ValueError(f"architecture {name!r}: role {role!r} is not one of {', '.join(get_args(Role))}")
        if builder is not None and not _BUILDER.fullmatch(builder):
            raise ValueError(f"architecture {name!r}: builder {builder!r} must read 'package.module:function'")
        self.name, self.role, self.options, self.summary, self.server_side = name, role, options, summary, server_side
        self.builder, self.reads, self.batch_norm, self.private = builder, reads, batch_norm, private
        self._edge, self._multiple = edge, multiple
        self.tasks = frozenset(tasks)
        self._normalises = True if batch_norm else normalises

    def check_input(self, shape: list[int], dtype: str) -> None:
        """Refuse a task whose samples the network cannot read, as far as rank, type and strict sizes tell.

        Raises:
            ValueError: with the remedy.
        """
        form = check_form(self.name, self.reads, shape, dtype)
        if form:
            check_edges(self.name, self.role, shape, self._edge, self._multiple)

    def check_task(self, kind: TaskKind) -> None:
        """Refuse a kind of task that the network does not end in.

        Raises:
            ValueError: says for which it is.
        """
        if kind not in self.tasks:
            small = {"dense": ": take unet-small", "tokens": ": take transformer-causal-tiny"}.get(kind, "")
            own = ", ".join(sorted(self.tasks))
            raise ValueError(f"{self.name!r} is a network for {own}, not for a task of kind {kind!r}{small}")

    def read(self, options: Mapping[str, Any]) -> Options:
        """Return options that were checked when they came, or that a program has at hand.

        Raises:
            ValueError: they do not fit the architecture.
        """
        return stored(self.options, options)

    def check_options(self, options: Mapping[str, Any]) -> None:
        """Refuse options that came as JSON and do not fit the architecture.

        Raises:
            OptionsError: the first of them.
        """
        try:
            self.options.model_validate_json(to_json(options))
        except ValidationError as error:
            raise OptionsError(*faults_of(error, options)[0]) from None

    def normalises(self, options: Mapping[str, Any]) -> bool | None:
        """Whether layers normalise, with these options; None where nobody knows."""
        norm = getattr(self.read(options), "norm", None)
        return self._normalises if norm is None else norm != "none"

    def check_private(self, options: Mapping[str, Any]) -> None:
        """Refuse a network whose samples have no gradients of their own, which DP-SGD clips one by one.

        Raises:
            ValueError: with the remedy.
        """
        self.check_per_sample(options, "be trained with local.privacy")
        if not self.private:
            why = "no sample's share in its gradient can be told"
            raise ValueError(f"{self.name!r} cannot be trained with local.privacy: {why}; take a transformer")

    def check_per_sample(self, options: Mapping[str, Any], purpose: str) -> None:
        """Refuse a network with BatchNorm, through which a sample's output depends on the others of its batch.

        Raises:
            ValueError: says what it is no good for, with the remedy.
        """
        if not self.batch_norm and getattr(self.read(options), "norm", None) != "bn":
            return
        choices = self.options.model_json_schema().get("properties", {}).get("norm", {}).get("enum", [])
        other = [choice for choice in choices if choice != "bn"]
        name = "disc-resnet-8" if self.role == "discriminator" else "resnet-8"
        remedy = f"give it the option norm={other[0]}" if other else f"take one without, such as {name} with norm=gn"
        raise ValueError(f"{self.name!r} cannot {purpose}: its BatchNorm mixes the samples of a batch; {remedy}")

    def check_output(self, shape: list[int]) -> None:
        """Refuse a task whose outputs, without the batch, are not what the network gives, where that is fixed.

        Raises:
            ValueError: with the remedy.
        """

    def shares_head(self, options: Mapping[str, Any]) -> bool:
        """Whether it ends in the head that networks of several kinds can share (Fed-ET)."""
        return bool(options.get("common_head"))

    def vocabulary(self, options: Mapping[str, Any]) -> int | None:
        """Return how many token ids it knows with these options; None where it reads none, or nobody knows."""
        return getattr(self.read(options), "vocab_size", None)

    def output(self, options: Mapping[str, Any]) -> Output:
        """Return what a discriminator with these options ends in; a raw score where there is no choice."""
        parsed = self.read(options)
        return parsed.output if isinstance(parsed, DiscriminatorOptions) else "score"


class GraphOptions(Options):
    """A network that is a document has no options."""


class GraphEntry(Entry):
    """A network that is a document, by the name that holds its digest; what it is stands on the shelf.

    Raises:
        ValueError: nothing is known of such a document here.
    """

    def __init__(self, name: str):
        self._facts: Facts = shelf.facts(name)
        self.name, self.role, self.options, self.server_side = name, self._facts.role, GraphOptions, True
        self.summary = f"a network of its users' own, {self._facts.parameters:,} parameters"
        self.builder, self.reads, self.batch_norm = None, "anything", self._facts.batch_norm
        self.private, self._edge, self._multiple = False, None, 1
        self._normalises, self.tasks = self._facts.normalises, frozenset(KINDS)

    def check_input(self, shape: list[int], dtype: str) -> None:
        """Refuse a task with other samples than those that the network reads or, a generator, makes."""
        generates = self.role == "generator"
        own = ("float32", self._facts.output) if generates else (self._facts.input.dtype, self._facts.input.shape)
        if own != (dtype, shape):
            does = "makes" if generates else "reads"
            raise ValueError(
                f"{self.name!r} {does} {own[0]} {own[1]}; the task's samples are {dtype} {shape}: export it for these"
            )

    def check_output(self, shape: list[int]) -> None:
        """Refuse a task with other outputs."""
        if self.role != "generator" and self._facts.output != shape:
            raise ValueError(
                f"{self.name!r} gives {self._facts.output} for each sample, and {shape} is wanted: export a network "
                "that ends so"
            )

    def check_private(self, options: Mapping[str, Any]) -> None:
        """Refuse it: DP-SGD looks at layers, and a graph has none."""
        raise ValueError(
            f"{self.name!r} cannot be trained with local.privacy, which looks at layers, and a graph has none; take a "
            "network of the catalogue, or install yours as an architecture (docs/architectures.md)"
        )

    def check_per_sample(self, options: Mapping[str, Any], purpose: str) -> None:
        """Refuse one with BatchNorm."""
        if self.batch_norm:
            raise ValueError(
                f"{self.name!r} cannot {purpose}: its BatchNorm mixes the samples of a batch; export one without"
            )

    def shares_head(self, options: Mapping[str, Any]) -> bool:
        """Whether the tensors `head.*` make the output of the features, and no others."""
        return self._facts.shares_head

    def vocabulary(self, options: Mapping[str, Any]) -> int | None:
        """Return how many token ids its embeddings of the input have."""
        return self._facts.vocabulary

    def output(self, options: Mapping[str, Any]) -> Output:
        """Return what a discriminator ends in."""
        return "probability" if self._facts.gives == "probability" else "score"

"""What a document says about itself that others decide by: a few words, where the document has a thousand nodes."""

import math

from pydantic import Field

from contract.bodies import Part
from contract.networks import parts
from contract.networks.document import INPUT, Document, Input, Role, Shape

_BATCH_NORM = "aten.batch_norm.default"
_NORMS = (_BATCH_NORM, "aten.instance_norm.", "aten.layer_norm.", "aten.group_norm.", "aten.rms_norm.")
_EMBEDDING = "aten.embedding.default"
_SHARED = "head."


class Facts(Part):
    """A network in short."""

    role: Role
    input: Input
    output: Shape = Field(description="without the batch")
    gives: str = Field("score", description="what a discriminator ends in")
    parameters: int = Field(description="numbers that are trained")
    batch_norm: bool = Field(description="whether a layer mixes the samples of a batch")
    normalises: bool = Field(description="whether a layer normalises")
    features: bool = Field(description="whether features are named")
    shares_head: bool = Field(description="whether the tensors `head.*` make the output of the features, and no others")
    vocabulary: int | None = Field(
        None, exclude_if=lambda value: value is None, description="token ids that it knows, where an embedding says so"
    )


def facts_of(document: Document) -> Facts:
    """Return what a checked document says."""
    ops = {node.op for graph in (document.train, document.eval) for node in graph.nodes}
    return Facts(
        role=document.role,
        input=document.input,
        output=document.output,
        gives=document.gives,
        parameters=sum(
            math.prod(each.shape) for each in document.tensors if each.kind == "parameter" and each.same_as is None
        ),
        batch_norm=_BATCH_NORM in ops,
        normalises=any(op.startswith(_NORMS) for op in ops),
        features=document.train.features is not None,
        shares_head=document.train.features is not None and _shares_head(document),
        vocabulary=_vocabulary(document),
    )


def _vocabulary(document: Document) -> int | None:
    """Return the rows of the smallest embedding that reads the input as it comes."""
    rows = {each.name: each.shape[0] for each in document.tensors if each.shape}
    found = [
        rows[node.args[0]["tensor"]]
        for graph in (document.train, document.eval)
        for node in graph.nodes
        if node.op == _EMBEDDING and node.args[1:2] == [{"node": INPUT}] and node.args[0].get("tensor") in rows
    ]
    return min(found, default=None)


def _shares_head(document: Document) -> bool:
    """Whether what follows the features reads the tensors `head.*` and nothing else does."""
    for graph in (document.train, document.eval):
        last = parts.head(graph)
        names = {node.name for node in last}
        before = parts.tensors([node for node in graph.nodes if node.name not in names])
        after = parts.tensors(last)
        if not after or any(not name.startswith(_SHARED) for name in after):
            return False
        if any(name.startswith(_SHARED) for name in before):
            return False
    return True

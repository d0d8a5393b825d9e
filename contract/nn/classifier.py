"""What all classifiers have in common: logits = head(features(x)).

With the option `common_head` the head is the one of Fed-ET (algorithms A9), whose tensors `head.*` have the same shapes
in every architecture and so can be averaged over all of them.
"""

from torch import Tensor, nn

from contract.chains import COMMON_WIDTH


def shared_head(classes: int) -> nn.Sequential:
    """Return Fed-ET's representation head: [B, 128] -> logits [B, C]."""
    return nn.Sequential(nn.Linear(COMMON_WIDTH, COMMON_WIDTH), nn.ReLU(), nn.Linear(COMMON_WIDTH, classes))


class Classifier(nn.Module):
    """A backbone, perhaps an adapter, and a head.

    Args:
        backbone: [B, *input] -> [B, width].
        common_head: an adapter Linear(width, 128) and the shared head, instead of one linear layer.
    """

    def __init__(self, backbone: nn.Module, width: int, classes: int, *, common_head: bool):
        super().__init__()
        self.backbone = backbone
        self.adapter: nn.Module = nn.Linear(width, COMMON_WIDTH) if common_head else nn.Identity()
        self.head: nn.Module = shared_head(classes) if common_head else nn.Linear(width, classes)

    def features(self, x: Tensor) -> Tensor:
        """Return what the head reads: [B, width], or [B, 128] with the common head."""
        return self.adapter(self.backbone(x))  # type: ignore[no-any-return]

    def forward(self, x: Tensor) -> Tensor:
        """Return logits [B, C]."""
        return self.head(self.features(x))  # type: ignore[no-any-return]


class Projected(nn.Module):
    """A classifier with a projection head before its last layer, which is part of the model (MOON section 3.2).

    Args:
        plain: a classifier; its own last layer, which must be linear, is taken away.
        width: of the projection.

    Raises:
        ValueError: the classifier ends in something else.
    """

    def __init__(self, plain: nn.Module, width: int):
        super().__init__()
        last = plain.head
        if not isinstance(last, nn.Linear):
            raise ValueError(f"projection: the network ends in {type(last).__name__}, not in a linear layer `head`")
        if isinstance(plain, SequentialClassifier):
            plain[-1] = nn.Identity()
        else:
            plain.head = nn.Identity()
        inner = last.in_features
        self.backbone = plain
        self.projection = nn.Sequential(nn.Linear(inner, inner), nn.ReLU(), nn.Linear(inner, width))
        self.head: nn.Module = nn.Linear(width, last.out_features)

    def features(self, x: Tensor) -> Tensor:
        """Return what the head reads: [B, width]."""
        return self.projection(self.backbone(x))  # type: ignore[no-any-return]

    def forward(self, x: Tensor) -> Tensor:
        """Return logits [B, C]."""
        return self.head(self.features(x))  # type: ignore[no-any-return]


class SequentialClassifier(nn.Sequential):
    """Layers in a row of which the last one is the head: its tensors have numbers for names, as first published."""

    @property
    def head(self) -> nn.Module:
        """The last layer."""
        return self[-1]

    def features(self, x: Tensor) -> Tensor:
        """Return what the last layer reads: [B, d]."""
        for layer in list(self)[:-1]:
            x = layer(x)
        return x

"""Networks that nobody here has a name for, as their authors would write them."""

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import parametrizations


class Residual(nn.Module):
    """BatchNorm, dropout, a residual connection and a buffer of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4)
        self.inner = nn.Sequential(
            nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4, affine=False), nn.ReLU(inplace=True)
        )
        self.drop, self.fc = nn.Dropout(0.3), nn.Linear(4, 3)
        self.shift = nn.Buffer(torch.randn(4))

    def forward(self, x: Tensor) -> Tensor:
        x = functional.relu(self.norm(self.conv(x)), inplace=True)
        x = (x + self.inner(x)).mean((2, 3))
        return self.fc(self.drop(x + self.shift))  # type: ignore[no-any-return]


class Lstm(nn.Module):
    """Embedding, two layers of LSTM in both directions with dropout between them, the mean over words."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(11, 5, padding_idx=0)
        self.lstm = nn.LSTM(5, 4, num_layers=2, dropout=0.2, batch_first=True, bidirectional=True)
        self.fc = nn.Linear(8, 3)

    def forward(self, ids: Tensor) -> Tensor:
        words = ((ids != 0) & (ids != 1)).unsqueeze(-1).float()
        states, _ = self.lstm(self.embedding(ids))
        return self.fc((states * words).sum(1) / words.sum(1).clamp(min=1))  # type: ignore[no-any-return]


class Gru(nn.Module):
    """A GRU that goes through the sequence from its last state."""

    def __init__(self) -> None:
        super().__init__()
        self.gru, self.fc = nn.GRU(4, 5), nn.Linear(5, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.gru(x.transpose(0, 1))[1][0])  # type: ignore[no-any-return]


class Transformer(nn.Module):
    """torch's own encoder, with a causal mask, dropout, and positions that are no part of the state."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(11, 8)
        self.register_buffer("positions", torch.randn(6, 8), persistent=False)
        layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.1, batch_first=True, norm_first=True)
        self.layers, self.fc = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Linear(8, 3)

    def forward(self, ids: Tensor) -> Tensor:
        mask = torch.triu(torch.full((6, 6), float("-inf")), diagonal=1)
        states = self.layers(self.embedding(ids) + self.positions, mask=mask, is_causal=True)
        return self.fc(states.mean(1))  # type: ignore[no-any-return]


class UNet(nn.Module):
    """GroupNorm, max-pooling, a transposed convolution, a skip connection: [B, 1, H, W] -> [B, 2, H, W]."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.GroupNorm(2, 4), nn.SiLU())
        self.low = nn.Sequential(nn.MaxPool2d(2), nn.Conv2d(4, 8, 3, padding=1), nn.ReLU())
        self.up, self.last = nn.ConvTranspose2d(8, 4, 2, stride=2), nn.Conv2d(8, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        skip = self.down(x)
        low = functional.interpolate(self.low(skip), scale_factor=2.0, mode="bilinear")
        fine = self.up(functional.avg_pool2d(low, 2))
        return self.last(torch.cat([skip, fine], 1))  # type: ignore[no-any-return]


class ConvNext(nn.Module):
    """A block with a depthwise convolution, LayerNorm over channels, GELU, layer scale and stochastic depth."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.depthwise = nn.Conv2d(3, 4, 2, stride=2), nn.Conv2d(4, 4, 3, padding=1, groups=4)
        self.norm, self.mlp = nn.LayerNorm(4), nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 4))
        self.gamma, self.fc = nn.Parameter(torch.full((4,), 0.1)), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        block = self.gamma * self.mlp(self.norm(self.depthwise(x).permute(0, 2, 3, 1)))
        if self.training:
            block = block * torch.rand(x.shape[0], 1, 1, 1).lt(0.8).to(block.dtype) / 0.8
        return self.fc((x + block.permute(0, 3, 1, 2)).flatten(2).mean(-1))  # type: ignore[no-any-return]


class Tied(nn.Module):
    """Weight norm, one weight in two layers, and a layer that is not trained."""

    def __init__(self) -> None:
        super().__init__()
        self.first = parametrizations.weight_norm(nn.Linear(6, 6))
        self.second, self.third, self.fc = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 3)
        self.third.weight = self.second.weight
        self.fc.bias.requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(torch.tanh(self.third(torch.tanh(self.second(self.first(x))))))  # type: ignore[no-any-return]


class Batched(nn.Module):
    """BatchNorm behind the features, which themselves are named by no method."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(nn.Linear(6, 5), nn.ReLU())
        self.classifier = nn.Sequential(nn.BatchNorm1d(5), nn.Linear(5, 3))

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.features(x))  # type: ignore[no-any-return]


class Plain(nn.Module):
    """One layer."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(x)  # type: ignore[no-any-return]


class Branching(Plain):
    """Looks at values."""

    def forward(self, x: Tensor) -> Tensor:
        if x.sum() > 0:
            x = x * 2
        return self.fc(x)  # type: ignore[no-any-return]


class Fixed(Plain):
    """Is for batches of five."""

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(x.reshape(len(x), 6))  # type: ignore[no-any-return]


class Masked(Plain):
    """Wants a mask, too."""

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:  # type: ignore[override]
        return self.fc(x * mask)  # type: ignore[no-any-return]


class Sorted(Plain):
    """Calls an operator that is not on the list."""

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(x.sort(1)[0])  # type: ignore[no-any-return]


class Paused(Plain):
    """Computes a part without gradients."""

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            mean = x.mean(1, keepdim=True)
        return self.fc(x - mean)  # type: ignore[no-any-return]


class Idle(Plain):
    """Has a parameter that nothing reads."""

    def __init__(self) -> None:
        super().__init__()
        self.spare = nn.Linear(2, 2)


class Named(Plain):
    """Returns what others return of theirs: a dict that calls its outputs logits."""

    def forward(self, x: Tensor) -> dict[str, Tensor]:  # type: ignore[override]
        return {"read": x, "logits": super().forward(x)}


class Pair(Plain):
    """Returns two things."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        return self.fc(x), x


class Twice(Plain):
    """Runs its head twice."""

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(x) + self.fc(x * 2)  # type: ignore[no-any-return]


class Shortcut(Plain):
    """Its output reads the input past the features."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.features(x) + x)  # type: ignore[no-any-return]

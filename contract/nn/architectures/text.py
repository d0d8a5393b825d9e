"""Networks over token ids int64 [B, L], 0 = padding: `lstm`, `transformer-tiny`, `-mini`, `transformer-causal-tiny`.

All are trained from scratch. The representation of a text is the mean over its words; padding takes part in nothing.
The encoders have BERT-tiny's and BERT-mini's sizes (Turc et al. 2019) but no [CLS] token, segments, pooler or dropout,
and normalise before each part instead of after it, which trains without a warm-up (Xiong et al. 2020).
"""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

from contract.architecture_options import CausalOptions, LstmOptions, TransformerOptions
from contract.nn.classifier import Classifier
from contract.nn.inputs import token_length
from contract.nn.lora import LoraLinear
from contract.nn.registry import architecture
from contract.wire.federations import Task

PADDING = 0
Linear = Callable[[int, int], nn.Module]
"""(inputs, outputs) -> a linear layer, with an adapter or without."""


def _checked(ids: Tensor, length: int, vocab_size: int) -> Tensor:
    """Return which tokens are words, [B, L] bool; a bad id on a GPU would end the whole process otherwise."""
    if ids.ndim != 2 or ids.shape[1] != length or ids.dtype != torch.int64:
        raise ValueError(
            f"token ids are {ids.dtype} {list(ids.shape)}, but task.input.shape asks for int64 [B, {length}]"
        )
    traced = torch.compiler.is_compiling()  # as a graph, which checks its input itself (`contract.nn.graphs`)
    if not traced and ids.numel() and (int(ids.min()) < 0 or int(ids.max()) >= vocab_size):
        raise ValueError(
            f"token ids go from {int(ids.min())} to {int(ids.max())}, but option 'vocab_size' is {vocab_size}: "
            "use the tokenizer with the same vocab_size"
        )
    return ids != PADDING


def _mean_of_words(states: Tensor, words: Tensor) -> Tensor:
    """[B, L, d], [B, L] bool -> [B, d]; zero for a text without words."""
    kept = words.unsqueeze(-1).to(states.dtype)
    return (states * kept).sum(dim=1) / kept.sum(dim=1).clamp(min=1)


class LstmEncoder(nn.Module):
    """Embedding, LSTM from left to right, mean over the words: int64 [B, L] -> [B, width]."""

    def __init__(self, length: int, vocab_size: int, width: int, layers: int):
        super().__init__()
        self.length, self.vocab_size = length, vocab_size
        self.embedding = nn.Embedding(vocab_size, width, padding_idx=PADDING)
        self.lstm = nn.LSTM(width, width, num_layers=layers, batch_first=True)

    def forward(self, ids: Tensor) -> Tensor:
        """Return a vector [B, width] for texts of token ids [B, L], int64."""
        words = _checked(ids, self.length, self.vocab_size)
        states, _ = self.lstm(self.embedding(ids))
        return _mean_of_words(states, words)


class Attention(nn.Module):
    """Self-attention (Vaswani et al. 2017, eq. 1), written out: the fused kernels' gradients vary from run to run."""

    def __init__(self, width: int, heads: int, linear: Linear = nn.Linear):
        super().__init__()
        self.heads = heads
        self.inward = linear(width, 3 * width)
        self.outward = linear(width, width)

    def forward(self, x: Tensor, words: Tensor) -> Tensor:
        """[B, L, d], [B, L] bool -> [B, L, d]; with [B, L, L] each token has words of its own to look at."""
        batch, length, width = x.shape
        seen = words[:, None, None, :] if words.ndim == 2 else words[:, None]
        shape = (batch, length, 3, self.heads, width // self.heads)
        query, key, value = self.inward(x).view(shape).permute(2, 0, 3, 1, 4)  # each [B, heads, L, d / heads]
        scores = query @ key.transpose(-1, -2) * (width // self.heads) ** -0.5
        # The smallest number and not -inf: a text of padding alone gives means and not NaN.
        scores = scores.masked_fill(~seen, torch.finfo(scores.dtype).min)
        mixed = scores.softmax(dim=-1) @ value
        return self.outward(mixed.transpose(1, 2).reshape(batch, length, width))  # type: ignore[no-any-return]


class EncoderLayer(nn.Module):
    """x + attention(norm(x)), then x + mlp(norm(x)) with four times the width and GELU."""

    def __init__(self, width: int, heads: int, linear: Linear = nn.Linear):
        super().__init__()
        self.attention_norm = nn.LayerNorm(width)
        self.attention = Attention(width, heads, linear)
        self.mlp_norm = nn.LayerNorm(width)
        self.mlp = nn.Sequential(linear(width, 4 * width), nn.GELU(), linear(4 * width, width))

    def forward(self, x: Tensor, words: Tensor) -> Tensor:
        """[B, L, d], [B, L] or [B, L, L] bool -> [B, L, d]."""
        x = x + self.attention(self.attention_norm(x), words)
        return x + self.mlp(self.mlp_norm(x))  # type: ignore[no-any-return]


class TransformerEncoder(nn.Module):
    """Token and position embeddings, layers, norm, mean over the words: int64 [B, L] -> [B, width]."""

    def __init__(self, length: int, vocab_size: int, width: int, layers: int, heads: int, linear: Linear = nn.Linear):
        super().__init__()
        self.length, self.vocab_size = length, vocab_size
        self.embedding = nn.Embedding(vocab_size, width, padding_idx=PADDING)
        self.positions = nn.Parameter(torch.empty(length, width))
        self.layers = nn.ModuleList(EncoderLayer(width, heads, linear) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self._initialise()

    def _initialise(self) -> None:
        """Draw weights from N(0, 0.02) as BERT does; biases and the padding's row are zero; adapters as LoRA has it."""
        for module in self.modules():
            if isinstance(module, (nn.Linear, nn.Embedding)):
                nn.init.normal_(module.weight, std=0.02)
            if isinstance(module, nn.Linear) and module.bias is not None:
                nn.init.zeros_(module.bias)
        nn.init.normal_(self.positions, std=0.02)
        with torch.no_grad():
            self.embedding.weight[PADDING].zero_()
        for module in self.modules():
            if isinstance(module, LoraLinear):
                module.reset_adapter()

    def states(self, ids: Tensor, words: Tensor) -> Tensor:
        """Return a vector of each token [B, L, width]; `words` as `Attention` takes them."""
        x = self.embedding(ids) + self.positions
        for layer in self.layers:
            x = layer(x, words)
        return self.norm(x)  # type: ignore[no-any-return]

    def forward(self, ids: Tensor) -> Tensor:
        """Return a vector [B, width] for texts of token ids [B, L], int64."""
        words = _checked(ids, self.length, self.vocab_size)
        return _mean_of_words(self.states(ids, words), words)


class CausalTransformer(nn.Module):
    """A token sees itself and the words before it: int64 [B, L] -> logits [B, L, C]."""

    def __init__(self, encoder: TransformerEncoder, width: int, classes: int):
        super().__init__()
        self.encoder = encoder
        self.head = nn.Linear(width, classes)

    def forward(self, ids: Tensor) -> Tensor:
        """Return logits [B, L, C] of texts of token ids [B, L]."""
        words = _checked(ids, self.encoder.length, self.encoder.vocab_size)
        before = torch.ones(ids.shape[1], ids.shape[1], dtype=torch.bool, device=ids.device).tril()
        return self.head(self.encoder.states(ids, words[:, None, :] & before))  # type: ignore[no-any-return]


@architecture("transformer-causal-tiny")
def build_transformer_causal_tiny(options: CausalOptions, task: Task) -> nn.Module:
    """int64 [B, L] -> logits [B, L, C]."""
    length = token_length("transformer-causal-tiny", task)
    return CausalTransformer(TransformerEncoder(length, options.vocab_size, 128, 2, 2), 128, task.num_classes)


@architecture("lstm")
def build_lstm(options: LstmOptions, task: Task) -> nn.Module:
    """int64 [B, L] -> logits [B, C]."""
    encoder = LstmEncoder(token_length("lstm", task), options.vocab_size, options.width, options.layers)
    return Classifier(encoder, options.width, task.num_classes, common_head=options.common_head)


def _register(name: str, width: int, layers: int, heads: int) -> None:
    @architecture(name)
    def build(options: TransformerOptions, task: Task) -> nn.Module:
        """int64 [B, L] -> logits [B, C]."""
        linear: Linear = nn.Linear
        if options.lora_rank is not None:
            linear = partial(LoraLinear, rank=options.lora_rank, alpha=options.lora_alpha)
        encoder = TransformerEncoder(token_length(name, task), options.vocab_size, width, layers, heads, linear)
        return Classifier(encoder, width, task.num_classes, common_head=options.common_head)


_register("transformer-tiny", width=128, layers=2, heads=2)
_register("transformer-mini", width=256, layers=4, heads=4)

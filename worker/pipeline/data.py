"""Data: the set that teachers label, one function per choice, and what a student sees instead of a plain sample."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from contract.recipes import parts
from contract.seeds import derive_seed
from contract.wire.federations import Task
from worker.pipeline.networks import read_inputs
from worker.registry import implements
from worker.specs import JobFailure

Drawn = Callable[[Any, Task, Path | None, int], Tensor]
"""(choice, task, file of the unlabelled set or of samples, the federation's seed) -> inputs [U, ...]."""


def server_set(choice: parts.Data, task: Task, unlabeled: Path | None, seed: int) -> Tensor:
    """Return the inputs [U, *task.input.shape] that are labelled; the same in every round.

    Raises:
        JobFailure: bad_option (no such data, or noise for token ids), schema_mismatch.
    """
    draw: Drawn = implements.of(choice)
    return draw(choice, task, unlabeled, seed)


@implements(parts.DataUnlabeled, parts.DataLabeled)
def _unlabeled(_: parts.DataUnlabeled | parts.DataLabeled, task: Task, path: Path | None, seed: int) -> Tensor:
    if path is None:
        raise JobFailure("bad_option", "the recipe distils, which needs an unlabelled data set: datasets.unlabeled")
    return read_inputs(path, task, "unlabeled")


@implements(parts.DataGenerated)
def _generated(choice: parts.DataGenerated, task: Task, path: Path | None, seed: int) -> Tensor:
    """The samples that the generator's job drew once for the whole federation (FedGO D2); a round's own are
    `worker.pipeline.drawing`'s.
    """
    if path is None:
        raise JobFailure("bad_option", "generated data are the generator's samples; give them as datasets.unlabeled")
    inputs = read_inputs(path, task, "generated")
    if len(inputs) != choice.count:
        raise JobFailure("schema_mismatch", f"{len(inputs)} generated samples; the recipe has {choice.count}")
    return inputs


@implements(parts.DataNoise)
def _noise(choice: parts.DataNoise, task: Task, path: Path | None, seed: int) -> Tensor:
    if task.input.is_tokens:
        raise JobFailure("bad_option", "noise is float32; token ids (int64) need an unlabelled data set")
    draw = torch.Generator().manual_seed(derive_seed(seed, "noise"))
    unit = torch.rand(choice.count, *task.input.shape, generator=draw)
    return unit * (choice.high - choice.low) + choice.low


class Augmenter:
    """Mirrors and crops images at random; draws on the CPU, so that the device does not matter.

    Args:
        augment: the recipe's choice.
        task: its inputs must be images [C, H, W].
        seed: of the draws.

    Attributes:
        draw: where they come from.

    Raises:
        JobFailure: bad_option, when there is something to do and inputs are no images.
    """

    def __init__(self, augment: parts.Augment, task: Task, seed: int):
        self._augment = augment
        self.draw = torch.Generator().manual_seed(seed)
        if augment != parts.Augment() and not task.input.is_image:
            raise JobFailure("bad_option", "data.augment is for images [C, H, W]; this task has other inputs")

    def __call__(self, images: Tensor) -> Tensor:
        """Return the batch [B, C, H, W] as the student is to see it."""
        if self._augment.flip:
            mirrored = torch.rand(len(images), generator=self.draw) < 0.5
            images = torch.where(mirrored.to(images.device).view(-1, 1, 1, 1), images.flip(3), images)
        return self._cropped(images) if self._augment.pad else images

    def _cropped(self, images: Tensor) -> Tensor:
        pad, (count, _, height, width) = self._augment.pad, images.shape
        top = torch.randint(2 * pad + 1, (count, 1), generator=self.draw) + torch.arange(height)
        left = torch.randint(2 * pad + 1, (count, 1), generator=self.draw) + torch.arange(width)
        padded = torch.nn.functional.pad(images, (pad, pad, pad, pad))
        rows = torch.arange(count).view(-1, 1, 1)
        picked = padded.permute(0, 2, 3, 1)[rows, top.unsqueeze(2), left.unsqueeze(1)]
        return picked.permute(0, 3, 1, 2).contiguous()

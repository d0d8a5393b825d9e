"""How weights move, on devices and in distillation alike."""

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from contract.bodies import LISTED
from contract.choices import ONE_OF, Choice

LearningRate = Annotated[float, Field(gt=0, le=10, description="learning rate")]

Beta = Annotated[float, Field(ge=0, lt=1)]


class OptimizerChoice(Choice):
    """How weights move."""

    slot = "optimizer"

    if TYPE_CHECKING:  # each of them has these
        lr: LearningRate
        weight_decay: float


class Sgd(OptimizerChoice):
    """Plain or momentum stochastic gradient descent."""

    kind: Literal["sgd"] = "sgd"
    lr: LearningRate = 0.01
    momentum: float = Field(0.0, ge=0, lt=1, description="of the gradient's running sum")
    weight_decay: float = Field(0.0, ge=0, le=1, description="times the weights, added to their gradient")


class Adam(OptimizerChoice):
    """Adam with PyTorch's epsilon."""

    kind: Literal["adam"] = "adam"
    lr: LearningRate = 1e-3
    betas: Annotated[tuple[Beta, Beta], LISTED] = Field(
        (0.9, 0.999), description="decay of the running means of the gradient and of its square"
    )
    weight_decay: float = Field(0.0, ge=0, le=1, description="times the weights, added to their gradient")


Optimizer = Annotated[OptimizerChoice, ONE_OF]

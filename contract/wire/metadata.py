"""What a device says of an update, in the file itself."""

import re
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from contract.bounds import NAME, Id
from contract.evaluation import Evaluation
from contract.json_text import RepeatedKey, read_json
from contract.wire.common import Request


class UpdateMetrics(Request):
    """Figures a device may report with its update, in the safetensors metadata under `metrics` as JSON."""

    loss: float | None = Field(None, description="mean training loss of the last epoch")
    accuracy: float | None = Field(None, ge=0, le=1)
    steps: int | None = Field(None, ge=0)
    seconds: float | None = Field(None, ge=0)
    clipped: int | None = Field(None, ge=0, description="values of a masked update that were beyond the plan's clip")
    epsilon: float | None = Field(None, ge=0, description="differential privacy spent so far, at the plan's delta")
    evaluation: Evaluation | None = Field(
        None, description="of the model that was sent, on samples that were held back from training"
    )


def _from_text(value: Any) -> Any:
    try:
        return read_json(value) if isinstance(value, str) else value
    except RepeatedKey:
        raise
    except ValueError:  # also a number with too many digits to read
        return value


MetricsText = Annotated[UpdateMetrics, BeforeValidator(_from_text)]
_DIGITS = re.compile(r"-?[0-9]{1,15}", re.ASCII)
_SWITCH = {"1": True, "true": True, "0": False, "false": False}


class UpdateMetadata(Request):
    """The `__metadata__` of an update's safetensors file; all values travel as strings."""

    num_samples: int = Field(ge=1, le=2**40)
    base_model: str = Field(max_length=NAME)
    metrics: MetricsText | None = None
    control_reset: bool = Field(False, description="SCAFFOLD: the control variate was lost and starts at zeros again")
    session: Id | None = Field(None, description="of a secure round, for which the update is masked")

    @classmethod
    def read(cls, metadata: Mapping[str, str]) -> "UpdateMetadata":
        """Return what a file's metadata says; a safetensors writer may add keys of its own, such as ``format``.

        Raises:
            ValidationError: an entry is missing, or is not the text of what it should be.
        """
        values: dict[str, Any] = {key: value for key, value in metadata.items() if key in cls.model_fields}
        if _DIGITS.fullmatch(values.get("num_samples", "")):
            values["num_samples"] = int(values["num_samples"])
        if "control_reset" in values:
            values["control_reset"] = _SWITCH.get(values["control_reset"], values["control_reset"])
        return cls.model_validate(values)

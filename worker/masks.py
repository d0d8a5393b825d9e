"""What a job is told of a secure round: how its updates are added up, and what unmasks the sums."""

from pydantic import BaseModel, ConfigDict, Field

from contract.wire.plans import SecurePlan


class _Spec(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class SecureGroup(_Spec):
    """What unmasks the sum of one model's updates; names are clients', bytes in hexadecimal."""

    session: str
    mask_keys: dict[str, str] = Field(description="who advertised -> its public mask key")
    commitments: dict[str, str] = Field(description="who advertised -> SHA-256 of its self mask's seed")
    members: list[str] = Field(description="who shared secrets")
    survivors: list[str] = Field(description="whose updates are added up")
    seeds: dict[str, dict[str, str]] = Field(description="revealer -> survivor -> share of its seed")
    keys: dict[str, dict[str, str]] = Field(description="revealer -> who dropped out -> share of its mask key")


class SecureSum(_Spec):
    """Updates are added up in fixed point, and only sums are read."""

    plan: SecurePlan
    groups: dict[str, SecureGroup] | None = Field(
        None, description="by model; null: the updates are plain, and are encoded as devices would (simulations)"
    )

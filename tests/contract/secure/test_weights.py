"""What an update counts in a secure sum, for every rule that has one."""

from pydantic import TypeAdapter

from contract.choices import choices_of
from contract.recipes.parts import Fuse, FuseChoice
from contract.secure.weights import is_weighted, weight_of


def test_every_rule_that_sums_but_the_uniform_mean_counts_samples() -> None:
    kinds = [choice.model_fields["kind"].default for choice in choices_of(FuseChoice) if choice.sums is not None]
    read = TypeAdapter[FuseChoice](Fuse)
    assert [kind for kind in kinds if not is_weighted(read.validate_python({"kind": kind}))] == ["uniform_mean"]
    assert (weight_of(7, True), weight_of(7, False), weight_of(0, True)) == (7, 1, 0)

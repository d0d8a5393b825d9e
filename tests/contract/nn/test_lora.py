import torch

from contract.nn.frozen import TiedNames, frozen_but, frozen_parts, still_norms
from contract.nn.lora import LoraLinear
from contract.nn.registry import initialise
from contract.wire.federations import InputSpec, Task

TEXT = Task(num_classes=4, input=InputSpec(shape=[8], dtype="int64"))


def test_an_adapter_adds_its_product() -> None:
    layer = LoraLinear(3, 2, rank=1, alpha=4.0).double()
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[1.0, 0, 0], [0, 1, 0]]))
        layer.bias.copy_(torch.tensor([0.5, -0.5]))
        layer.lora_a.weight.copy_(torch.tensor([[1.0, 2, 3]]))
        layer.lora_b.weight.copy_(torch.tensor([[1.0], [-1]]))
    # x W^T + b = [1.5, 0.5]; A x = 1 + 2 + 3 = 6; 4 / 1 * 6 * [1, -1] = [24, -24]
    torch.testing.assert_close(layer(torch.ones(1, 3).double()), torch.tensor([[25.5, -23.5]]).double())


def test_an_encoder_with_fresh_adapters_is_the_one_without() -> None:
    plain = initialise("transformer-tiny", {"vocab_size": 50}, TEXT, 0)
    adapted = initialise("transformer-tiny", {"vocab_size": 50, "lora_rank": 2}, TEXT, 1)
    missing = adapted.load_state_dict(plain.state_dict(), strict=False)
    assert not missing.unexpected_keys
    assert len(missing.missing_keys) == 2 * 4 * 2  # layers, linear layers of each, factors
    assert all(".lora_a.weight" in name or ".lora_b.weight" in name for name in missing.missing_keys)
    ids = torch.randint(1, 50, (3, 8), generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(adapted(ids), plain(ids), rtol=0, atol=0)


def test_both_factors_learn_once_b_has_left_zero() -> None:
    layer = LoraLinear(3, 2, rank=2, alpha=2.0)
    layer(torch.ones(1, 3)).sum().backward()
    assert torch.count_nonzero(layer.lora_a.weight)
    assert layer.lora_a.weight.grad is not None
    assert layer.lora_b.weight.grad is not None
    assert not torch.count_nonzero(layer.lora_a.weight.grad)  # through B, which is zero
    assert torch.count_nonzero(layer.lora_b.weight.grad)


def test_what_is_frozen_rests_and_is_as_before_afterwards() -> None:
    module = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2), torch.nn.Linear(2, 2))
    module[2].bias.requires_grad_(False)
    moving = {"1.weight", "1.bias", "2.weight"}
    with frozen_but(module, moving):
        assert {name for name, value in module.named_parameters() if value.requires_grad} == moving
        assert frozen_parts(module) == [module[0]]
        assert still_norms(module, moving) == [module[1]]
        assert still_norms(module, moving | {"1.running_mean"}) == []
    assert [name for name, value in module.named_parameters() if not value.requires_grad] == ["2.bias"]


def test_a_parameter_of_two_names_is_frozen_by_both_or_none() -> None:
    module = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2))
    module[1].weight = module[0].weight
    with frozen_but(module, {"0.weight", "1.weight"}):
        assert not module[1].bias.requires_grad
    try:
        with frozen_but(module, {"1.weight"}):
            raise AssertionError("it was taken")
    except TiedNames as error:
        assert "'0.weight' and '1.weight' are one parameter" in str(error)

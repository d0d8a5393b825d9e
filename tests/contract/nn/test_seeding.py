"""Threads that seed torch's global generator take turns: each gets what it would get alone."""

import threading

import torch

from contract.nn.registry import build, initialise
from contract.nn.seeding import global_seed
from contract.wire.federations import Task

TASK = Task.model_validate({"num_classes": 4, "input": {"shape": [1, 8, 8]}})


def test_threads_do_not_draw_each_others_numbers() -> None:
    """Many threads initialise, build and train with dropout at once; the weights are those of their seeds."""
    alone = {seed: initialise("cnn-digits", {}, TASK, seed).state_dict() for seed in range(8)}
    found: dict[int, list[dict[str, torch.Tensor]]] = {seed: [] for seed in alone}

    def work(seed: int) -> None:
        for _ in range(15):
            build("mlp", {}, task=TASK)
            found[seed].append(initialise("cnn-digits", {}, TASK, seed).state_dict())
            with global_seed(seed):
                first = torch.rand(3)
                build("cnn-digits", {}, task=TASK)
                second = torch.rand(3)
            expected = torch.rand(6, generator=torch.Generator().manual_seed(seed))
            assert torch.equal(torch.cat([first, second]), expected)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in alone]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for seed, states in found.items():
        assert len(states) == 15, "a thread failed"
        for state in states:
            assert all(torch.equal(state[name], alone[seed][name]) for name in state)


def test_the_generator_is_as_it_was_afterwards() -> None:
    torch.manual_seed(3)
    before = torch.get_rng_state()
    with global_seed(11):
        torch.rand(5)
    build("mlp", {}, task=TASK)
    assert torch.equal(torch.get_rng_state(), before)

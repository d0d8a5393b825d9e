"""What a round of SCAFFOLD is told of its clients: N of each prototype."""

import numpy as np

from contract.updates import CONTROL
from tests.service.world import World
from worker.ledger import Claimed, Ledger
from worker.specs import RoundSpec

PARAMETERS = ("conv.weight", "bn.weight", "fc.weight", "fc.bias")


def test_n_is_the_prototypes_own_clients_with_those_whose_update_counts(world: World) -> None:
    """c is the mean of the c_i of those that train the model: others, and who has left, have none in it."""
    network = {"architecture": "mlp", "options": {"hidden": [4]}}
    fed = world.create(
        recipe={"name": "scaffold"},
        local={"objective": {"kind": "scaffold"}},
        prototypes=[{"name": "a", **network}, {"name": "b", **network}],
        rounds={"total": 2, "min_clients": 6, "clients_per_round": 6, "min_updates": 2},
    )
    for name, prototype in {"a1": "a", "a2": "a", "b1": "b", "b2": "b", "b3": "b", "left": "b"}.items():
        world.enrol(fed, name, prototype=prototype)
    world.ok("POST", f"/v1/federations/{fed.id}/start")
    model = world.forge.arrays()
    world.finish(world.claim(), {"a": model, "b": model})
    round_ = world.round(fed)
    changes = {CONTROL + name: np.ones(value.shape, np.float32) for name, value in model.items() if name in PARAMETERS}
    for name in ("a1", "b1"):
        metadata = {"num_samples": "10", "base_model": round_["base_models"][name[0]]}
        sent = world.push(fed, name, world.forge.pack(model | changes, metadata))
        assert sent.status_code == 201, sent.text
    for name in ("a1", "left"):  # the first has sent its update, the other nothing
        world.ok("DELETE", f"/v1/federations/{fed.id}/clients/{fed.devices[name].id}")
    world.ok("POST", f"/v1/rounds/{round_['id']}/close")
    job, ledger = world.claim(), Ledger(world.settings)
    try:
        spec = ledger.load(Claimed(job.id, job.kind, job.fence, job.attempt, job.federation_id, job.round_id))
    finally:
        ledger.leave()
    assert isinstance(spec, RoundSpec)
    assert {each.client for each in spec.updates} == {"a1", "b1"}
    assert spec.clients_total == {"a": 2, "b": 3}

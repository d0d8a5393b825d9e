import pytest

from contract.federation import FederationConfig
from contract.tensors import Header, TensorInfo
from contract.wire.federations import Prototype
from service.domain.errors import DomainError
from service.domain.parting import check_imported

BASE = {
    "task": {"num_classes": 2, "input": {"shape": [1]}},
    "recipe": {"name": "fedavg", "fuse": {"kind": "weighted_mean"}},
    "local": {},
    "rounds": {},
    "datasets": {},
}
NETWORK = Header({name: TensorInfo("F32", (1,), 4 * at, 4 * at + 4) for at, name in enumerate(("body", "head"))})


def config_of(prototype: Prototype) -> FederationConfig:
    return FederationConfig.model_validate({**BASE, "prototypes": [prototype]})


@pytest.mark.parametrize("architecture", ["custom", "net:sha256-" + "0" * 64])
def test_patterns_are_held_against_networks_whose_tensors_are_known(architecture: str) -> None:
    def check(*trains: str) -> None:
        prototype = Prototype(architecture=architecture, initial_model="mdl_1", trains=list(trains))
        check_imported(config_of(prototype), {"mdl_1": NETWORK}.__getitem__)

    check("head")
    with pytest.raises(DomainError, match="'hood' is the name of none of the network's 2 tensors") as refused:
        check("head", "hood")
    assert refused.value.members["field"] == "prototypes.0.trains.1"


def test_an_imported_network_of_the_catalogue_may_lack_what_devices_train() -> None:
    prototype = Prototype(architecture="mlp", initial_model="mdl_1", trains=["3.*"])
    check_imported(config_of(prototype), {"mdl_1": NETWORK}.__getitem__)

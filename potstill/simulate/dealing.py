"""Which of a data set's samples are the server's, and which client's, as an experiment says."""

import numpy as np

from contract.seeds import derive_seed
from potstill.samples import Samples
from potstill.simulate import domain, partition
from potstill.simulate.config import SimulationError
from potstill.simulate.loaded import Loaded
from potstill.simulate.settings import Experiment, task_of


def server_parts(
    experiment: Experiment, loaded: Loaded, pool: Samples, generator: np.random.Generator
) -> tuple[Samples, Samples, Samples]:
    """Return the server's unlabelled samples, its validation samples and what is left for the clients."""
    asked, checked = experiment.server_samples, experiment.validation_samples
    if loaded.server is not None:
        size = len(loaded.server) - checked if asked is None else asked
        unlabeled, validation, _ = partition.stratified(loaded.server.dealt_by, [max(size, 0), checked], generator)
        return loaded.server.take(unlabeled), loaded.server.take(validation), pool
    size = int(loaded.server_share * len(pool)) if asked is None else asked
    chosen, held, rest = partition.stratified(pool.dealt_by, [size, checked], generator)
    return pool.take(chosen), pool.take(held), pool.take(rest)


def _skewed(experiment: Experiment, server: Samples, seed: int) -> Samples:
    generator = np.random.default_rng(derive_seed(seed, "simulate", "server_skew"))
    share = experiment.server_skew
    return server if share is None else domain.skewed(server, share, generator)


def of_other_domain(experiment: Experiment, loaded: Loaded, server: Samples, seed: int) -> Samples:
    """Return the server's samples, skewed or as many of another domain where they are to be; the clients' stay."""
    server = _skewed(experiment, server, seed)
    if loaded.other is not None:
        generator = np.random.default_rng(derive_seed(seed, "simulate", "server_data"))
        server = domain.drawn(loaded.other, len(server), generator)
    how = experiment.server_transform
    return server if how is None else domain.changed(server, how)


def shares(experiment: Experiment, pool: Samples, generator: np.random.Generator) -> partition.Shares:
    """Return for each client the positions in the pool that it gets.

    Raises:
        SimulationError: the pool cannot be dealt so.
    """
    labels, clients = pool.dealt_by, experiment.clients
    if experiment.partition == "iid":
        return partition.iid(labels, clients, generator)
    if experiment.partition == "user":
        if pool.users is None:
            raise SimulationError(
                "partition: the data do not say whose a sample is; give a file with an array `users`, or take another "
                "partition"
            )
        return partition.by_user(pool.users, clients, generator, experiment.smallest)
    if experiment.partition == "step":
        return partition.step(labels, clients, generator, experiment.major, experiment.minor)
    if experiment.balanced == "feddf":
        return partition.dirichlet_balanced(labels, clients, experiment.alpha, generator)
    return partition.dirichlet(labels, clients, experiment.alpha, generator, experiment.smallest)


def check(experiment: Experiment, loaded: Loaded) -> None:
    """Refuse changes of samples that are no images, and of those that another set has.

    Raises:
        SimulationError: names the field.
    """
    if loaded.other is not None:
        domain.check_inputs(loaded.other, task_of(loaded))
    if experiment.server_transform is not None:
        domain.check_transform(experiment.server_transform, task_of(loaded))
    if experiment.client_transform is not None:
        domain.check_transform(experiment.client_transform, task_of(loaded), "client_transform")
    if loaded.other is not None and (experiment.server_skew or experiment.client_transform):
        field = "server_skew" if experiment.server_skew else "client_transform"
        raise SimulationError(f"{field}: changes the data's own samples, and server_data are others; leave one out")

"""Clients that are registered, in the round or not: what is known of them, and what they claim of server data."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np

from contract.recipes import parts
from contract.tensors import TensorFile, write_file
from worker.parts import balance
from worker.parts.arrays import Float
from worker.parts.weigh import log_weights, of_clients
from worker.pipeline.job import Round
from worker.specs import JobFailure, RegisteredSpec

_CLIENTS, _MADE_OF, _SCALES = "clients", "made_of", "scales"


def registered(job: Round) -> dict[str, RegisteredSpec]:
    """Return who is registered, in the order of their names; of those without samples, or scores that are read, none.

    A client of the round is among them with what it has told of itself, and its scores of the round's sets.
    """
    here = {
        each.client: RegisteredSpec(prototype=each.prototype, num_samples=each.num_samples, scores=None)
        for each in job.participants
    }
    reads, found = job.spec.recipe.weighs_by_scores, dict[str, RegisteredSpec]()
    for name, each in sorted((here | job.spec.registered).items()):
        scores = job.scores.get(name, each.scores)
        if each.num_samples > 0 and (scores is not None or not reads):
            found[name] = each.model_copy(update={"scores": scores})
    return found


def place_of(job: Round, client: str) -> int:
    """Return a client's place among those of the round and those who are registered; names may hold any letters."""
    return sorted({*job.spec.registered, *(each.client for each in job.participants)}).index(client)


def read_scores(path: Path) -> dict[str, Float]:
    """Return a client's discriminator scores [S], float64, by set."""
    with TensorFile(path) as file:
        return {name: file.read(name).astype(np.float64) for name in file.names}


# -------------------------------------------------------------------------------------------------------------- claims
def claim(job: Round) -> None:
    """Balance the odds of all registered clients on the server set, where the recipe does and that is not done yet.

    They are kept as long as nobody joins or leaves or has other samples. File: `unlabeled` F64 [N, S], the log weights,
    and `scales` F64 [N]; the clients' names are in its metadata.

    Figures: `balance` with the largest distance of a sample's sum from 1, and how many clients it is of.

    Raises:
        JobFailure: bad_option where scores of the server set are missing; schema_mismatch. PartError: as `balance`.
    """
    weigh = _balancing(job)
    if weigh is None:
        return
    clients = registered(job)
    rows = [_scores_of(name, each, "unlabeled") for name, each in clients.items()]
    if len({row.shape for row in rows}) > 1:
        raise JobFailure("schema_mismatch", "discriminators scored server sets of different sizes")
    made_of = _digest(weigh, clients, rows)
    kept = job.state.get(parts.CLAIMS.named())
    if kept is None or _metadata(kept)[_MADE_OF] != made_of:
        kept = job.spec.output_dir / "claims.safetensors"
        counts = np.array([each.num_samples for each in clients.values()], np.float64)
        logs = np.stack([_plain(weigh, each, row) for each, row in zip(clients.values(), rows, strict=True)])
        found = balance.balance(logs, counts, weigh.sweeps)
        names = {_CLIENTS: json.dumps(list(clients)), _MADE_OF: made_of}
        write_file(kept, {"unlabeled": found.logs, _SCALES: found.scales}, names)
        job.state[parts.CLAIMS.named()] = kept
    with TensorFile(kept) as file:
        sums = np.exp(balance.log_sum(file.read("unlabeled"), axis=0))
    figures = {"clients": len(clients), "sum_error": float(np.abs(sums - 1).max())} if weigh.sweeps else {}
    job.metrics |= {"balance": figures} if figures else {}


def _balancing(job: Round) -> parts.WeighBalancedOdds | None:
    distil = job.spec.recipe.distil
    factors = () if distil is None else distil.weigh.factors_of
    return next((each for each in factors if isinstance(each, parts.WeighBalancedOdds)), None)


def _scores_of(name: str, client: RegisteredSpec, set_name: str) -> Float:
    found = {} if client.scores is None else read_scores(client.scores)
    if set_name not in found:
        raise JobFailure("bad_option", f"the discriminator of {name!r} has no scores of the {set_name} set")
    return found[set_name]


def _plain(weigh: parts.WeighBalancedOdds, client: RegisteredSpec, scores: Float) -> Float:
    return log_weights(weigh, client.num_samples, np.zeros((len(scores), 1)), scores)


def _digest(weigh: parts.WeighBalancedOdds, clients: Mapping[str, RegisteredSpec], rows: list[Float]) -> str:
    """Return what tells whether all is as it was when odds were balanced."""
    options = [weigh.sweeps] if weigh.sharpness == 1 else [weigh.sweeps, weigh.sharpness]  # as before there was one
    found = hashlib.sha256(json.dumps([*options, [[k, v.num_samples] for k, v in clients.items()]]).encode())
    for row in rows:
        found.update(np.ascontiguousarray(row).data)
    return found.hexdigest()


def _metadata(path: Path) -> Mapping[str, str]:
    with TensorFile(path) as file:
        return file.header.metadata


# ------------------------------------------------------------------------------------------------- what they count
def count_together(job: Round, names: Iterable[str], target: Path) -> Path:
    """Write what clients count together on every set, and return the file: ``<set>.<number of the factor>`` F64 [S].

    Factors that do not count clients are not in it. Of the test set balanced odds are plain ones by clients' scales.
    """
    distil = job.spec.recipe.distil
    assert distil is not None
    clients = {name: each for name, each in registered(job).items() if name in set(names)}
    arrays = together(distil.weigh, [(each.num_samples, each.scores) for each in clients.values()])
    weigh = _balancing(job)
    if weigh is not None:
        number = distil.weigh.factors_of.index(weigh)
        arrays |= {f"{name}.{number}": row for name, row in _claimed(job, weigh, clients).items()}
    write_file(target, arrays)
    return target


def _claimed(job: Round, weigh: parts.WeighBalancedOdds, clients: Mapping[str, RegisteredSpec]) -> dict[str, Float]:
    """Return ln of the sum of clients' balanced weights, by set."""
    with TensorFile(job.state[parts.CLAIMS.named()]) as file:
        order = json.loads(file.header.metadata[_CLIENTS])
        size, scales = file.info("unlabeled").shape[1], file.read(_SCALES)
        places = {name: order.index(name) for name in clients}
        rows = {name: file.read_block("unlabeled", place * size, size) for name, place in places.items()}
    found = {"unlabeled": balance.log_sum(np.stack(list(rows.values())), axis=0)}
    others = {name: read_scores(each.scores) for name, each in clients.items() if each.scores is not None}
    if all("test" in each for each in others.values()):
        tested = [_plain(weigh, clients[name], each["test"]) + scales[places[name]] for name, each in others.items()]
        found["test"] = balance.log_sum(np.stack(tested), axis=0)
    return found


def together(weigh: parts.Weigh, clients: list[tuple[int, Path | None]]) -> dict[str, Float]:
    """Return what clients, of n_k samples and a file of scores each, count together: ``<set>.<factor>`` [S]."""
    scores: list[Mapping[str, Float]] = [{} if path is None else read_scores(path) for _, path in clients]
    sizes = {name: len(row) for name, row in scores[0].items()} or {"unlabeled": 1, "test": 1}
    arrays: dict[str, Float] = {}
    for name, size in sizes.items():
        given = [(n, found.get(name)) for (n, _), found in zip(clients, scores, strict=True)]
        arrays |= {f"{name}.{factor}": row for factor, row in of_clients(weigh, given, size).items()}
    return arrays

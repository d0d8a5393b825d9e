"""A round's own samples, where every round draws anew, and what clients' discriminators say of its sets (DaFKD)."""

from collections.abc import Callable, Mapping, Sequence

from torch import Tensor

from contract.nn.codec import read_tensor
from contract.nn.judge import Judge, head_of
from contract.nn.scaling import to_signed_unit
from contract.objectives import JOINT_GENERATOR, DafkdObjective
from contract.recipes import parts
from contract.seeds import derive_seed
from contract.tensors import Array, TensorFile, write_file
from contract.updates import DISCRIMINATOR
from worker.pipeline.blame import blame
from worker.pipeline.data import server_set
from worker.pipeline.generators import Made, draw
from worker.pipeline.job import Round, Update
from worker.pipeline.networks import build_network, read_inputs
from worker.pipeline.stages import outputs_of, scores_of
from worker.specs import DrawnSpec, JobFailure, NetworkRef

Scores = dict[str, Array]
"""Scores [S] by set, float32."""
Ask = Callable[[Round, Update, Mapping[str, Tensor]], Scores]
"""(job, update, inputs [S, ...] by set) -> what its client's discriminator says."""


# ------------------------------------------------------------------------------------------------------------- samples
def round_set(job: Round) -> Tensor:
    """Return the inputs [U, *task.input.shape] that teachers label: the federation's or, drawn anew, the round's own.

    The same round draws the same samples, whoever took part in it. A generator that devices train beside their model
    is the one that they were sent for the round, as in the authors' code.

    Raises:
        JobFailure: as `server_set`; bad_option, schema_mismatch or non_finite, of the generator.
    """
    spec, distil = job.spec, job.spec.recipe.distil
    assert distil is not None
    if not isinstance(distil.data, parts.DataGenerated) or not distil.data.fresh:
        return server_set(distil.data, spec.task, spec.datasets.unlabeled, spec.seed)
    generator, span = _generator(job)
    made = Made(build_network(generator, spec.task, job.device, owner="generator"), span)
    return draw(made, distil.data.count, derive_seed(spec.seed, "samples", spec.round_index), job.device)


def _generator(job: Round) -> tuple[NetworkRef, tuple[float, float]]:
    """Return the round's generator, and the data values that its -1 and 1 stand for."""
    objective = job.spec.local.objective
    if isinstance(objective, DafkdObjective):
        weights = job.spec.state.get(JOINT_GENERATOR.named())
        if weights is None:
            raise JobFailure("bad_option", "the round needs the generator that devices were sent: state")
        network = NetworkRef(architecture=objective.architecture, options=objective.options, weights=weights)
        return network, objective.input_range
    return _source(job).generator, _source(job).input_range


def _source(job: Round) -> DrawnSpec:
    if job.spec.drawn is None:
        raise JobFailure("bad_option", "samples are drawn anew in every round, which needs the generator: drawn")
    return job.spec.drawn


# -------------------------------------------------------------------------------------------------------------- scores
def score_round(job: Round) -> None:
    """Have the participants' discriminators score what they have not, where a weighting reads them.

    Those that came with the updates score all of the round's sets. Those that were trained before the rounds score
    the round's own samples, where it has such; what they said of the test set stays, and a client without it is no
    teacher.

    Raises:
        JobFailure: schema_mismatch, out_of_range or non_finite, naming the client.
    """
    distil, recipe = job.spec.recipe.distil, job.spec.recipe
    if distil is None or not recipe.weighs_by_scores:
        return
    if recipe.fuse.judges:
        _score_all(job, job.participants, _sets(job), _judged)
    elif distil.data.drawn_anew:
        inputs = {"unlabeled": to_signed_unit(round_set(job), _source(job).input_range)}
        _score_all(job, [each for each in job.participants if each.client in job.scores], inputs, _discriminated)


def learnt(job: Round) -> Tensor | None:
    """Return the server set, where students learn what teachers say of it."""
    distil = job.spec.recipe.distil
    if distil is None or not distil.students.learns or distil.data.labelled:
        return None
    return round_set(job)


def asked_sets(job: Round, learnt: Tensor | None) -> dict[str, Tensor]:
    """Return the sets that teachers label: what is learnt of them and, to measure them, the test set."""
    spec, sets = job.spec, {} if learnt is None else {"unlabeled": learnt}
    if spec.datasets.test is not None and not spec.recipe.sends_predictions:
        sets["test"] = read_inputs(spec.datasets.test, spec.task, "test")
    return sets


def _sets(job: Round) -> dict[str, Tensor]:
    """Return the sets that discriminators are asked of, in the data's own values."""
    spec, distil = job.spec, job.spec.recipe.distil
    found = {} if distil is None or not distil.students.learns else {"unlabeled": round_set(job)}
    if spec.datasets.test is not None:
        found["test"] = read_inputs(spec.datasets.test, spec.task, "test")
    return found


def _score_all(job: Round, updates: Sequence[Update], sets: Mapping[str, Tensor], ask: Ask) -> None:
    with job.phases.phase("score", of=len(updates)):
        for number, update in enumerate(updates, start=1):
            with blame(update.client):
                found = ask(job, update, sets)
            job.scores[update.client] = job.spec.output_dir / f"scores-{number}.safetensors"
            write_file(job.scores[update.client], found)
            job.phases.step(number)


def _discriminated(job: Round, update: Update, sets: Mapping[str, Tensor]) -> Scores:
    """Ask the discriminator that a client trained before the rounds."""
    drawn = _source(job)
    scorer, weights = drawn.scorer, drawn.discriminators.get(update.client)
    if scorer is None or weights is None:
        raise JobFailure(
            "bad_option", f"the discriminator of {update.client!r} is not here to score the round's samples"
        )
    network = NetworkRef(architecture=scorer.architecture, options=scorer.options, weights=weights)
    found = scores_of(network, job.spec.task, sets, job.device, f"discriminator of {update.client!r}")
    with TensorFile(job.scores[update.client]) as file:
        return {name: file.read(name) for name in file.names} | found


def _judged(job: Round, update: Update, sets: Mapping[str, Tensor]) -> Scores:
    """Ask the discriminator that came with a client's update: a head on its own model's features."""
    owner = f"discriminator of {update.client!r}"
    trunk = build_network(job.network(update.prototype, update.weights), job.spec.task, job.device, owner=owner)
    with TensorFile(update.sent) as file:
        state = {name: read_tensor(file, DISCRIMINATOR + name) for name in ("weight", "bias")}
    head = head_of(state["weight"].shape[1])
    head.load_state_dict(state)
    judge = Judge(trunk, head.to(job.device))
    return {name: outputs_of(judge, inputs, job.device, owner) for name, inputs in sets.items()}

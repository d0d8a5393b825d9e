"""A round's own samples, where every round draws anew (DaFKD): from the generator, and scored by its discriminators."""

from torch import Tensor

from contract.nn.scaling import to_signed_unit
from contract.recipes import parts
from contract.seeds import derive_seed
from contract.tensors import TensorFile, write_file
from worker.pipeline.blame import blame
from worker.pipeline.data import server_set
from worker.pipeline.generators import Made, draw
from worker.pipeline.job import Round, Update
from worker.pipeline.networks import build_network
from worker.pipeline.stages import scores_of
from worker.specs import DrawnSpec, JobFailure, NetworkRef


def round_set(job: Round) -> Tensor:
    """Return the inputs [U, *task.input.shape] that teachers label: the federation's or, drawn anew, the round's own.

    The same round draws the same samples, whoever took part in it.

    Raises:
        JobFailure: as `server_set`; bad_option, schema_mismatch or non_finite, of the generator.
    """
    spec, distil = job.spec, job.spec.recipe.distil
    assert distil is not None
    if not isinstance(distil.data, parts.DataGenerated) or not distil.data.fresh:
        return server_set(distil.data, spec.task, spec.datasets.unlabeled, spec.seed)
    drawn = _source(job)
    made = Made(build_network(drawn.generator, spec.task, job.device, owner="generator"), drawn.input_range)
    return draw(made, distil.data.count, derive_seed(spec.seed, "samples", spec.round_index), job.device)


def _source(job: Round) -> DrawnSpec:
    if job.spec.drawn is None:
        raise JobFailure("bad_option", "samples are drawn anew in every round, which needs the generator: drawn")
    return job.spec.drawn


def score_round(job: Round) -> None:
    """Have the participants' discriminators score the round's own samples, where it has such and a weighting reads it.

    What they said of the test set, once for the whole federation, stays. A client without it is no teacher.

    Raises:
        JobFailure: schema_mismatch, out_of_range or non_finite, naming the client.
    """
    distil = job.spec.recipe.distil
    if distil is None or not distil.data.drawn_anew or not job.spec.recipe.reads_scores:
        return
    drawn = _source(job)
    inputs = to_signed_unit(round_set(job), drawn.input_range)
    scored = [each for each in job.participants if each.client in job.scores]
    with job.phases.phase("score", of=len(scored)):
        for number, update in enumerate(scored, start=1):
            with blame(update.client):
                _score(job, drawn, update, number, inputs)
            job.phases.step(number)


def _score(job: Round, drawn: DrawnSpec, update: Update, number: int, inputs: Tensor) -> None:
    scorer, weights = drawn.scorer, drawn.discriminators.get(update.client)
    if scorer is None or weights is None:
        raise JobFailure(
            "bad_option", f"the discriminator of {update.client!r} is not here to score the round's samples"
        )
    network = NetworkRef(architecture=scorer.architecture, options=scorer.options, weights=weights)
    owner = f"discriminator of {update.client!r}"
    found = scores_of(network, job.spec.task, {"unlabeled": inputs}, job.device, owner)
    with TensorFile(job.scores[update.client]) as file:
        found = {name: file.read(name) for name in file.names} | found
    path = job.spec.output_dir / f"scores-{number}.safetensors"
    write_file(path, found)
    job.scores[update.client] = path

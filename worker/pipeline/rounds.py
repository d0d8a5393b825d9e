"""One round: updates are received, averaged and, if the recipe says so, distilled; then it is measured."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from contract.groups import is_main
from contract.measures import main_figure
from contract.recipes import parts
from worker.checkpoints import Checkpoint, Checkpoints
from worker.pipeline.explaining import explain
from worker.pipeline.extras import prepare_extras, send_targets
from worker.pipeline.fusing import check_groups, fuse
from worker.pipeline.heard import Heard
from worker.pipeline.job import Round, copy_file
from worker.pipeline.outliers import look_over
from worker.pipeline.updates import receive, temporary
from worker.specs import Handover, JobResult, Progress, RoundSpec

if TYPE_CHECKING:
    from torch import Tensor

    from worker.pipeline import labels
    from worker.pipeline.labels import Ensemble
    from worker.pipeline.targets import Targets
    from worker.pipeline.teachers import Members


def fuse_round(
    spec: RoundSpec,
    report: Callable[[Progress], None],
    device: str = "cpu",
    checkpoints: Checkpoints | None = None,
    hand_over: Callable[[Handover], None] | None = None,
) -> JobResult:
    """Fuse one round by its recipe and return the models that change and the state that is kept.

    A prototype that nobody trained and that is no student is not among the models: it stays byte for byte.

    Figures: `accuracy` or `measured` (see `worker.pipeline.evaluation`), `average`, `model` and `ensemble` with theirs,
    `distances`, `outliers` and `excluded` (see `worker.pipeline.outliers`), `weights` and `teacher_weights` per client,
    `distil` per student, `teacher_forwards` and `flops` of labelling what is learnt and of distillation, `balance`,
    `bank` and `members` of recipes that count absent clients, `gate` (see `worker.pipeline.gate`), `explanation` (see
    `worker.pipeline.explaining`), `seconds`.

    Raises:
        JobFailure: see `worker.pipeline.run`; errors name the client.
    """
    job = Round.begin(spec, report, device, checkpoints)
    job.metrics |= {"members": spec.exchanged} if spec.exchanged else {}
    check_groups(spec)
    made = _received(job)
    if spec.recipe.drop_worst is not None:
        from worker.pipeline.filters import leave_out_worst

        leave_out_worst(job)
    fuse(job)
    look_over(job)
    if spec.secure is not None:
        from worker.pipeline.sums import shares

        job.metrics["weights"] = shares(job)
    job.models = dict(job.averages)
    if hand_over is not None and spec.hand_over:
        hand_over(_given_away(job))
    if spec.recipe.distil is not None:
        _distil(job)
    if spec.keep_ensemble:
        _keep(job)
    prepare_extras(job)
    if spec.gate is not None:
        from worker.pipeline.gate import measure

        measure(job)
    if spec.datasets.test is not None:
        from worker.pipeline.evaluation import evaluate

        evaluate(job)
    if spec.explain != "off" and spec.secure is None:
        explain(job)
    for path in made:
        path.unlink(missing_ok=True)
    job.metrics["seconds"] = job.phases.seconds
    state = job.state if job.state != spec.state else None
    return JobResult(models=job.models, state=state, ensemble=job.ensemble, metrics=job.metrics, device=device)


def _keep(job: Round) -> None:
    """Have files of who predicts together."""
    from worker.pipeline.drawing import learnt
    from worker.pipeline.ensembles import keep

    keep(job, lambda: _calibration(job, learnt(job)))


def _received(job: Round) -> list[Path]:
    """Have the job's updates, or their sums, checked and ready; return the files that this made."""
    if job.spec.secure is not None:
        from worker.pipeline.sums import add_up  # and with it `cryptography`

        add_up(job)
        job.measured = None
        return list(temporary(job))
    receive(job)
    made = list(temporary(job))  # also of those that are left out next
    if job.spec.max_distance is not None or job.spec.recipe.drop_worst is not None:
        look_over(job)
    return made


def _given_away(job: Round) -> Handover:
    """Return copies of the averages that distillation leaves as they are; the round goes on reading its own."""
    made = {}
    for name, average in job.averages.items():
        if not is_main(name):
            made[name] = job.file("ahead", name)
            copy_file(average, made[name])
    return Handover(models=made)


def _distil(job: Round) -> None:
    """Label once; then every student learns from the same labels (FedDF Alg. 3)."""
    from worker.pipeline.absent import claim
    from worker.pipeline.drawing import score_round
    from worker.pipeline.head import push_back
    from worker.pipeline.students import students_of, teach_all
    from worker.pipeline.teachers import remember_groups

    distil = job.spec.recipe.distil
    assert distil is not None
    score_round(job)
    claim(job)
    remember_groups(job)
    students = students_of(job)
    job.metrics["teacher_forwards"] = 0
    job.metrics["flops"] = {"labelling": 0, "distillation": 0}
    if not students and distil.students.learns:
        job.metrics["warm_up"] = True
        return
    inputs, targets = _label(job)
    if targets is not None and job.spec.recipe.sends_predictions:
        send_targets(job, targets.logits.double().softmax(dim=1).float().numpy())
    if targets is not None and inputs is not None and students:
        teach_all(job, students, inputs, targets)
    if distil.students.shares_head:
        push_back(job)


def _label(job: Round) -> "tuple[Tensor | None, Targets | None]":
    """Return the server set, None where nobody learns, and what students learn of it: its own labels or the teachers'.

    Teachers are asked of the test set as well, to be measured.
    """
    from worker.pipeline.drawing import round_set
    from worker.pipeline.targets import own_targets

    spec, distil = job.spec, job.spec.recipe.distil
    assert distil is not None
    if not distil.students.learns:
        _ask_teachers(job, None)
        return None, None
    inputs = round_set(job)
    if not distil.data.labelled:
        return inputs, _ask_teachers(job, inputs)
    assert spec.datasets.unlabeled is not None
    targets = own_targets(spec.datasets.unlabeled, spec.task, len(inputs), spec.output_dir / "own-labels")
    _ask_teachers(job, None)
    return inputs, targets


def _ask_teachers(job: Round, learnt: "Tensor | None") -> "Targets | None":
    """Have the teachers label what is learnt and the test set; return the labels of what is learnt."""
    from worker.pipeline import labels
    from worker.pipeline.drawing import asked_sets
    from worker.pipeline.networks import read_labels
    from worker.pipeline.shards import Shards
    from worker.pipeline.teachers import members

    spec, distil = job.spec, job.spec.recipe.distil
    assert distil is not None
    sets = asked_sets(job, learnt)
    if not sets:
        return None
    teachers = members(job)
    calibration = _calibration(job, learnt)
    heard = job.heard = Heard.of(
        spec.explain, spec.task, {name: len(inputs) for name, inputs in sets.items()}, teachers.count
    )
    shards = Shards.of(job)
    labeller = labels.Labeller(
        distil.weigh, distil.combine, spec.task, job.device, spec.output_dir, calibration, heard, shards
    )
    with job.phases.phase("label", of=teachers.count):
        ensembles = _labelled(job, labeller, teachers, sets)
    if shards is not None:
        job.metrics["labels"] = shards.figures()
    main = ensembles["test" if learnt is None else "unlabeled"]
    job.metrics["ensemble"] = labels.describe(main, spec.task.kind)
    job.metrics["teacher_forwards"] = 0 if learnt is None else main.forwards
    job.metrics["flops"]["labelling"] = 0 if learnt is None else main.flops
    job.metrics["teacher_weights"] = labels.teacher_weights(main)
    if heard is not None:
        heard.ensembles = {name: labels.together(each) for name, each in ensembles.items()}
    if "test" in ensembles and spec.datasets.test is not None:
        test_labels = read_labels(spec.datasets.test, "test", spec.task)
        figures = labels.ensemble_figures(ensembles["test"], test_labels, spec.task)
        job.metrics["ensemble"] |= {spec.task.main_metric.key: main_figure(spec.task, figures), "measures": figures}
    return None if learnt is None else main.targets


def _calibration(job: Round, learnt: "Tensor | None") -> "Tensor | None":
    """Return the inputs on which sampled models get their BatchNorm statistics, where there are any."""
    from worker.pipeline.networks import read_inputs

    spec, distil = job.spec, job.spec.recipe.distil
    sampled = distil is not None and isinstance(distil.members, parts.MembersPosterior)
    if sampled and learnt is None and spec.datasets.unlabeled is not None:
        return read_inputs(spec.datasets.unlabeled, spec.task, "unlabeled")
    return learnt


def _labelled(
    job: Round, labeller: "labels.Labeller", teachers: "Members", sets: "dict[str, Tensor]"
) -> "dict[str, Ensemble]":
    """Label, or go on with labelling, or take the labels that an earlier attempt has made."""
    from worker.pipeline import labels

    checkpoint = Checkpoint.of(job.checkpoints, "label")
    if checkpoint.saved is not None:
        job.phases.step(checkpoint.saved.step, resumed=True)
        if checkpoint.saved.notes.get("done"):
            for teacher in teachers.teachers:
                labeller.hear(teacher, sets)
            return labels.unpack(checkpoint.saved)
    ensembles = labeller.label(teachers, sets, job.phases.step, checkpoint)
    checkpoint.complete(teachers.count, lambda: labels.pack(ensembles))
    return ensembles

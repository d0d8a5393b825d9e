"""Presets that distil: FedDF, FedBE, Fed-ET, FedSDD, FedGO and what they are compared with."""

from collections.abc import Iterator

from contract.local import Adam, DafkdObjective, DiscriminatorPlan, DsFlObjective, LocalPlan, Sgd
from contract.notes import Remark, Setting
from contract.rates import RateSteps
from contract.recipes import parts
from contract.recipes.recipe import Distillation, Recipe
from contract.recipes.rows.objectives import FEDGKD_LOCAL, RING
from contract.recipes.rows.row import Preset

_FEDDF_SCHEDULE = parts.Schedule(
    optimizer=Adam(lr=1e-3),
    batch_size=128,
    steps=10_000,
    lr="cosine_per_job",
    clip_norm=5.0,
    early_stop=parts.EarlyStop(),
)
_FEDDF_CHOICES = (
    "Gradient norm clipped at 5, as the authors' code does.",
    "Pseudo-labels once per round, on images without augmentation.",
    "Early stopping needs a validation set; a federation without one runs the fixed number of steps.",
)
FEDGO_SCHEDULE = parts.Schedule(optimizer=Adam(lr=1e-3), batch_size=64, epochs=10, lr="cosine_across_rounds")
FEDGO_LOCAL = LocalPlan(optimizer=Adam(lr=1e-3), epochs=30, batch_size=64)
_FEDGO_STAGE = parts.Discriminators(
    generator=parts.GeneratorWganGp(
        architecture="gen-resnet", critic_architecture="critic-resnet", critic_options={}, steps=100_000
    ),
    plan=DiscriminatorPlan(architecture="disc-cnn-4", flip=True),
)
_FEDGO_CHOICES = (
    "The second sigmoid of the discriminator is part of its training.",
    "Scores on the server set are computed once for the whole federation.",
    "link = sigmoid gives plain odds; they are sharper and were better on small data.",
)
_FEDBE_SGD = Sgd(lr=1e-3, momentum=0.9, weight_decay=1e-5)
_FEDBE_LOCAL = LocalPlan(
    optimizer=Sgd(lr=0.01, momentum=0.9, weight_decay=1e-4), epochs=20, batch_size=40, rate_over_rounds=RateSteps()
)
_FEDBE_CHOICES = (
    "Weight decay 1e-5 of the authors' code; clients' 1e-4 is one of the two values the paper searched.",
    "The clients' rate is divided by ten after 30 % and after 60 % of the rounds, as in the paper.",
    "The paper's student sees padded, cropped, mirrored images: set data.augment for photographs; wrong for digits.",
)
_FEDSDD_LOCAL = LocalPlan(optimizer=Sgd(lr=0.8), epochs=40, batch_size=64)
_FEDSDD_SCHEDULE = parts.Schedule(optimizer=Sgd(lr=0.1), batch_size=256, steps=5000, lr="constant")
_FEDSDD_CHOICES = (
    "The clients' rate 0.8 is as printed; it looks high, and FedDF took 0.1.",
    "Groups are drawn anew every round; one without participants keeps its model, which still teaches.",
)
_KL4 = parts.ObjectiveKl(temperature=4.0)


def _drops_worst(recipe: Recipe, setting: Setting) -> Iterator[Remark]:
    """FedDF leaves out models at chance where networks do not normalise: its VGG-9 collapses without (Table 3)."""
    bare = sorted(name for name, normalises in setting.normalises.items() if normalises is False)
    judged = setting.task == "classification" and "validation" in setting.sets
    if recipe.drop_worst is None and bare and judged:
        yield Remark(
            "drop_worst",
            "on: models that are no better than chance on datasets.validation are left out",
            f"{bare[0]!r} has no layers that normalise, and FedDF needs it there (Table 3); drop_worst=null for off",
            becomes=parts.DropWorst(),
        )


def _weighs_by_samples(recipe: Recipe, setting: Setting) -> Iterator[Remark]:
    """Fed-ET's plain means stand for means by samples, because clients are drawn by samples."""
    if setting.selection == "uniform" and isinstance(recipe.fuse, parts.FuseUniformMean):
        why = "clients are drawn alike, not in proportion to their samples, which the paper's plain means count on"
        yield Remark("fuse", "weighted_mean: clients count by their samples", why, becomes=parts.FuseWeightedMean())


def _one_shot(recipe: Recipe, setting: Setting) -> Iterator[Remark]:
    if setting.rounds > 1:
        yield Remark(
            "", f"{setting.rounds} rounds of one-shot", "it is meant for one; set rounds.total to 1 for the paper's"
        )


ROWS = (
    Preset(
        Recipe(name="feddf", distil=Distillation(schedule=_FEDDF_SCHEDULE)),
        LocalPlan(optimizer=Sgd(lr=0.1), epochs=40, batch_size=64),
        "Lin et al. 2020 (FedDF), section 4.1, Algorithms 1 and 3, App. C.2",
        "The average learns from the mean of the clients' logits on unlabelled server data.",
        (
            *_FEDDF_CHOICES,
            "Models at chance are left out (drop_worst) where a network has no layers that normalise and there is a "
            "validation set.",
        ),
        _drops_worst,
    ),
    Preset(
        Recipe(
            name="fedbe",
            distil=Distillation(
                members=parts.MembersPosterior(),
                combine=parts.CombineProbs(sharpen=2.0),
                objective=parts.ObjectiveSoftCe(),
                students=parts.StudentsPrototypes(batch_norm="recalibrate"),
                schedule=parts.Schedule(optimizer=_FEDBE_SGD, batch_size=128, epochs=20, swa=parts.Swa()),
            ),
        ),
        _FEDBE_LOCAL,
        "Chen & Chao 2021 (FedBE), Algorithm 1, sections 4 and 5.1, App. B",
        "Clients, their mean and models sampled from a posterior over them teach the mean, by SWA.",
        (
            "10 samples of the Gaussian, which the paper works with; scale 0.1 as in the authors' runs, eq. 5 means 1.",
            "members.posterior.kind = dirichlet has alpha 0.5, the paper's value for ResNet-20 (Table 7).",
            "SWA as in the text (cycles from step 250), not as in the code; shorter jobs return their last model.",
            *_FEDBE_CHOICES,
        ),
    ),
    Preset(
        Recipe(
            name="v-distillation",
            distil=Distillation(
                combine=parts.CombineProbs(sharpen=2.0),
                objective=parts.ObjectiveSoftCe(),
                schedule=parts.Schedule(optimizer=_FEDBE_SGD, batch_size=128, epochs=20),
            ),
        ),
        _FEDBE_LOCAL,
        "Chen & Chao 2021 (FedBE), section 5.1, vanilla distillation",
        "FedBE with the clients as the only teachers, and without SWA.",
        ("The rate is constant at 0.001, where FedBE's cycles begin.", *_FEDBE_CHOICES),
    ),
    Preset(
        Recipe(
            name="one-shot-ensemble",
            distil=Distillation(combine=parts.CombineProbs(), students=parts.StudentsNone()),
        ),
        LocalPlan(optimizer=Sgd(lr=0.01, momentum=0.9, weight_decay=1e-4), epochs=200, batch_size=40),
        "Guha et al. 2019; FedBE Table 8",
        "One round of long local training; the clients' mean probabilities are the prediction.",
        ("Meant for one round. The published model is the average; the ensemble's accuracy is in the figures.",),
        _one_shot,
    ),
    Preset(
        Recipe(
            name="fedet",
            selection="samples",
            fuse=parts.FuseUniformMean(),
            distil=Distillation(
                weigh=parts.WeighVariance(space="probs"),
                combine=parts.CombineConsensus(),
                objective=parts.ObjectiveFedEt(),
                students=parts.StudentsServer(),
                schedule=parts.Schedule(optimizer=Adam(lr=1e-3), batch_size=64, epochs=10, lr="constant"),
            ),
        ),
        LocalPlan(optimizer=Sgd(lr=0.01, momentum=0.9), epochs=5, batch_size=32),
        "Cho et al. 2022 (Fed-ET), section 3, eq. 2 to 12",
        "Small models teach a larger one on the server and get its head back.",
        (
            "Optimisers, epochs and batch sizes are ours: the paper does not say.",
            "Clients are drawn in proportion to their samples, one after another, so averages are unweighted; drawn "
            "alike they count by their samples.",
            "All networks end in the same head behind an adapter of their own: give them common_head.",
            "The divergence to the diversity target is not renormalised, as eq. 8 reads.",
        ),
        _weighs_by_samples,
    ),
    Preset(
        Recipe(
            name="fedsdd",
            groups=parts.GroupsRandom(count=4),
            distil=Distillation(
                members=parts.MembersGroups(rounds=1),
                objective=_KL4,
                students=parts.StudentsMain(),
                schedule=_FEDSDD_SCHEDULE,
            ),
        ),
        _FEDSDD_LOCAL,
        "Kwan & Song (FedSDD), Algorithm 1, eq. 4 and 5, section 4.1",
        "K global models are averaged in random groups; the main one learns from all of them.",
        (
            "KL from teacher to student, although eq. 4 prints the student first.",
            "The ensemble holds the models before distillation, as Algorithm 1.",
            "rounds = 4 for strong heterogeneity.",
            "While the main model is distilled the other groups are at their next round (App. A.6): overlap.",
            *_FEDSDD_CHOICES,
        ),
    ),
    Preset(
        Recipe(
            name="fed-ensemble",
            groups=parts.GroupsRandom(count=4),
            distil=Distillation(members=parts.MembersGroups(rounds=1), students=parts.StudentsNone()),
        ),
        _FEDSDD_LOCAL,
        "Shi et al. 2021 (Fed-ensemble), as FedSDD without distillation",
        "K global models that are never distilled; their mean logits are the prediction.",
        ("Groups are random every round instead of a permutation of strata.", *_FEDSDD_CHOICES),
    ),
    Preset(
        Recipe(
            name="codistillation",
            groups=parts.GroupsRandom(count=4),
            distil=Distillation(
                members=parts.MembersGroups(rounds=1),
                objective=_KL4,
                students=parts.StudentsAll(warmup_rounds=20),
                schedule=_FEDSDD_SCHEDULE,
            ),
        ),
        _FEDSDD_LOCAL,
        "Anil et al. 2018, as FedSDD compares it (Table 6)",
        "All K models learn from their ensemble, after rounds without distillation.",
        ("The warm-up is 20 rounds; FedSDD took 20 and 40.", *_FEDSDD_CHOICES),
    ),
    Preset(
        Recipe(
            name="fedgo",
            distil=Distillation(
                weigh=parts.WeighOdds(link="double_sigmoid"),
                data=parts.DataUnlabeled(augment=parts.Augment(flip=True)),
                schedule=FEDGO_SCHEDULE,
            ),
            discriminators=_FEDGO_STAGE,
        ),
        FEDGO_LOCAL,
        "FedGO, Algorithms 1-3, eq. 9, App. E.2, Table 14",
        "As FedDF, but each teacher counts, image by image, by the odds that its client owns such images.",
        (
            "For images of 32x32, which the networks are made for; fedgo-small is for others, and for a CPU.",
            "Generator and critic are WGAN-GP's for CIFAR, trained for 100,000 steps, on images as they are.",
            "Discriminators and students see mirrored images; turn plan.flip and data.augment.flip off for digits.",
            *_FEDGO_CHOICES,
        ),
    ),
    Preset(
        Recipe(
            name="fedgo-small",
            distil=Distillation(weigh=parts.WeighOdds(link="double_sigmoid"), schedule=FEDGO_SCHEDULE),
            discriminators=parts.Discriminators(),
        ),
        FEDGO_LOCAL,
        "FedGO, Algorithms 1-3, eq. 9, App. E.2",
        "FedGO with small networks of ours, for samples of any shape.",
        (
            "Generator, critic and discriminator are small networks of ours, with 25,000 generator steps and no "
            "mirrored images; the paper's are those of fedgo.",
            *_FEDGO_CHOICES,
        ),
    ),
    Preset(
        Recipe(
            name="dafkd",
            fuse=parts.FuseJointMean(),
            distil=Distillation(
                weigh=parts.WeighDafkd(),
                objective=parts.ObjectiveKl(temperature=10.0),
                students=parts.StudentsAll(warmup_rounds=1),
                data=parts.DataGenerated(count=640, fresh=True),
                schedule=parts.Schedule(optimizer=Adam(lr=1e-5), batch_size=128, epochs=5, lr="constant"),
            ),
        ),
        LocalPlan(objective=DafkdObjective(), optimizer=Adam(lr=1e-3), epochs=5, batch_size=128),
        "Wang et al. 2023 (DaFKD); the authors' code",
        "Clients train a generator, and a discriminator on the classifier's trunk; each counts by it, on new samples.",
        (
            "Figures are those of the authors' code: 640 samples a round, none in the first, T = 10, Adam throughout.",
            "The discriminator's head goes to the server with the update, which scores the samples with it; in the "
            "authors' code, which is one process, clients do. It is not averaged, and each device keeps its own.",
            "Samples are drawn from the generator that the round's devices were sent, as in the code.",
            "Discriminator and generator are trained in every round; the code stops after 3 and 5 rounds "
            "(local.objective.discriminator_rounds, generator_rounds).",
            "KL is summed over the classes; the authors' code divides it by their number as well.",
            "The gradient penalty is on the slope of D by the whole sample; the code's norm is over channels, pixel by "
            "pixel.",
            "BatchNorm remembers statistics of real samples only; the code's of generated ones too.",
            "Rates are constant: the code divides them by five where a loss stands still, and has AMSGrad.",
            "The generator is a small network of ours, for samples of any shape: gen-dcgan is nearer to the code's.",
        ),
    ),
    Preset(
        Recipe(
            name="dafkd-lite",
            distil=Distillation(
                weigh=parts.WeighDafkd(),
                objective=parts.ObjectiveKl(temperature=10.0),
                schedule=parts.Schedule(optimizer=Adam(lr=1e-5), batch_size=64, epochs=10, lr="constant"),
            ),
            discriminators=parts.Discriminators(),
        ),
        FEDGO_LOCAL,
        "Wang et al. 2023 (DaFKD), its weighting and distillation; FedGO section 4",
        "DaFKD's weighting alone: discriminators of FedGO's kind, trained once, on unlabelled server data.",
        (
            "Discriminators are networks of their own, trained once as in fedgo-small; dafkd trains them every round, "
            "on a trunk that they share with the classifier, and distils on generated samples.",
            "KL is summed over the classes; the authors' code divides it by their number as well.",
            "Optimiser and epochs of the clients are those of FedGO's comparison.",
        ),
    ),
    Preset(
        Recipe(name="fedhkt", distil=Distillation(weigh=parts.WeighEntropy(tau=1.0), schedule=FEDGO_SCHEDULE)),
        FEDGO_LOCAL,
        "FedHKT and FedDS, as FedGO compares them (section 4)",
        "Teachers that are surer of an image count more on it.",
        (
            "tau is inside the exponential; as printed it would cancel.",
            "Everything else is FedGO's, as in its comparison: FedHKT's own text was not at hand.",
        ),
    ),
    Preset(
        Recipe(
            name="ds-fl",
            fuse=parts.FusePredictions(),
            distil=Distillation(
                combine=parts.CombineEra(temperature=0.1),
                objective=parts.ObjectiveSoftCe(),
                schedule=parts.Schedule(optimizer=Sgd(lr=0.1), batch_size=64, epochs=5),
            ),
        ),
        LocalPlan(objective=DsFlObjective(), optimizer=Sgd(lr=0.1), epochs=5, batch_size=64),
        "Itahara et al. 2021 (DS-FL), Algorithm 1, entropy reduction aggregation",
        "No weights travel: clients send probabilities on a public set and imitate their sharpened mean.",
        (
            "The server's unlabelled inputs are the public set: they are sent to every device.",
            "target = softmax(p / 0.1) of the clients' plain mean probabilities p, whatever their numbers of samples.",
            "A device imitates a round's target when it is next asked, before it trains on its own labels.",
            "A device starts from the global model of its first round and then goes on from its own.",
            "Optimiser, epochs and batch sizes, of clients and server alike, are ours.",
            "The server's own model, which the paper trains too, takes a server_model and students "
            "prototypes_and_server.",
        ),
    ),
    Preset(
        Recipe(name="fedgkd+", distil=Distillation(schedule=_FEDDF_SCHEDULE)),
        FEDGKD_LOCAL,
        "Yao et al. 2021 (FedGKD); FedGO App. E.2",
        "FedGKD's clients and FedDF's server.",
        (
            "No text defines FedGKD+; this is the reading that fits 'with ensemble distillation'.",
            "The ring holds published models, which are distilled ones.",
            RING,
            *_FEDDF_CHOICES,
        ),
    ),
)

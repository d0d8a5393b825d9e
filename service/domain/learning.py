"""Who learns what of whose data, made from what the choices of a recipe and a plan declare; it names none of them.

What was trained on data tells something of it each time that it is sent: FedGO (App. G.1) counts eps_M a model, eps_D a
discriminator and eps_G a generator. What that adds up to under DP-SGD devices count by themselves, and tell.
"""

from collections.abc import Iterator

from contract.choices import Choice, Occasion, Sent, walk
from contract.federation import FederationConfig
from contract.recipes.parts import GeneratorFederated
from contract.updates import BASE, SENT_WORDS
from contract.wire.report import Learnt

_LEDGER = "FedGO G.1"


def learnt(config: FederationConfig) -> list[Learnt]:
    """Return what each party learns, the server first."""
    return [*_by_the_server(config), *_by_devices(config)]


def _choices(config: FederationConfig) -> list[Choice]:
    return [*walk(config.recipe), *walk(config.local)]


def _when(config: FederationConfig, occasion: Occasion) -> str:
    rounds = config.rounds.total
    if occasion == "round":
        return f"every round that it takes part in, {rounds} at most"
    if occasion == "generator":
        stage = config.recipe.discriminators
        own = stage.generator.rounds if stage is not None and isinstance(stage.generator, GeneratorFederated) else 1
        return f"each of the generator's {own} rounds"
    return {"enrolment": "once, when it enrols", "before": "once, before the first round"}[occasion]


# ---------------------------------------------------------------------------------------------------------- the server
def _by_the_server(config: FederationConfig) -> Iterator[Learnt]:
    yield Learnt(party="server", what="the device's name, what it is capable of, and when it is there", when="always")
    yield Learnt(party="server", what="how many samples the device has", when=f"once, and {_when(config, 'round')}")
    if config.local.objective.sends_weights:
        yield _weights(config)
    for sent, source in _sent(config):
        noised = sent.noised if config.local.privacy is not None else ""
        what, when = sent.what.rstrip(","), _when(config, sent.when)
        yield Learnt(party="server", what=what, when=when, guarded=noised, source=source)
    if config.local.privacy is None and config.rounds.secure is None:
        yield Learnt(party="server", what="loss and accuracy on the device's own data", when=_when(config, "round"))


def _sent(config: FederationConfig) -> Iterator[tuple[Sent, str]]:
    """Yield what devices send beside weights, each once, and the source of the first choice that has them send it."""
    seen = set()
    for choice in _choices(config):
        for sent in choice.sends:
            if sent.when == "before" and not config.recipe.reads_scores:
                continue  # it comes with every update, and the objective tells of it
            if sent not in seen:
                seen.add(sent)
                yield sent, choice.declares.source


def _weights(config: FederationConfig) -> Learnt:
    secure, private, guards = config.rounds.secure, config.local.privacy, []
    if secure is not None:
        guards.append(f"masked: the server reads sums over at least {secure.min_group} devices, and no single one")
    if private is not None:
        guards.append("DP-SGD; the device tells the epsilon that all of it has cost")
    if config.local.precision is not None:
        guards.append("one bit a weight and one scale a channel, which is less, but no promise")
    what = "the device's model after local training (eps_M each time)"
    return Learnt(party="server", what=what, when=_when(config, "round"), guarded="; ".join(guards), source=_LEDGER)


# ------------------------------------------------------------------------------------------------------------- devices
def _by_devices(config: FederationConfig) -> Iterator[Learnt]:
    distil, stage = config.recipe.distil, config.recipe.discriminators
    every = _when(config, "round")
    if config.local.objective.sends_weights:
        what = "the model of its prototype, which other devices' updates went into"
        yield Learnt(party="devices", what=what, when=every)
    if any(prototype.parted for prototype in config.prototypes):
        yield Learnt(party="devices", what=SENT_WORDS[BASE], when=_when(config, "before"))
    if distil is not None and distil.students.learns and "unlabeled" in distil.data.needs:
        what = "of the server's unlabelled data, what a model tells that learnt from them (eps_M each time)"
        yield Learnt(party="devices", what=what, when=every, source=_LEDGER)
    if stage is not None and config.recipe.reads_scores:
        of = "of the server's unlabelled data, what a generator tells that was trained on them (eps_G)"
        what = of if "unlabeled" in stage.generator.needs else "the generator"
        yield Learnt(party="devices", what=what, when="once, before the first round", source=_LEDGER)
    if stage is not None and isinstance(stage.generator, GeneratorFederated):
        what = "the mean of all devices' generators and critics (eps_G and eps_D each time)"
        yield Learnt(party="devices", what=what, when=_when(config, "generator"), source=_LEDGER)
    for choice in _choices(config):
        for name in choice.declares.reads:
            yield Learnt(party="devices", what=SENT_WORDS[name], when=every, source=choice.declares.source)
    if config.rounds.secure is not None:
        yield Learnt(party="devices", what="names and public keys of those that it masks with", when=every)

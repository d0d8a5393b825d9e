"""Ensembles: a round's models that predict together, and how. What a recipe's are, and what can be done with one."""

from contract import architectures
from contract.bundles import ENSEMBLE, README
from contract.recipes import parts
from contract.recipes.recipe import Recipe
from contract.wire.ensembles import EnsembleDocument

MEMBERS_ARE_PREDICTIONS = "devices send predictions of the server set, and no models that could predict anything else"
SCORERS_ARE_NOT_KEPT = "discriminators come with each round's updates and are not kept, and teachers count by them"
MEMBERS_ARE_REMEMBERED = "absent clients count by what is known of the server's own sets alone"
MEMBERS_ARE_MASKED = "secure rounds show sums alone, and these teachers are clients' models or are drawn from them"


def rule_of(recipe: Recipe) -> tuple[parts.WeighChoice, parts.CombineChoice]:
    """Return how a recipe's ensemble is weighed and fused; of one that only averages all count alike, and the mean of
    logits predicts (FedDF's AVGLOGITS on the clients' models).
    """
    if recipe.distil is None:
        return parts.WeighUniform(), parts.CombineLogits()
    return recipe.distil.weigh, recipe.distil.combine


def why_none(recipe: Recipe, secure: bool) -> str | None:
    """Return why rounds of a recipe can keep no ensemble; None where they can.

    Args:
        recipe: the federation's.
        secure: whether its rounds are.
    """
    if recipe.fuse.judges and recipe.weighs_by_scores:
        return SCORERS_ARE_NOT_KEPT
    if recipe.sends_predictions:
        return MEMBERS_ARE_PREDICTIONS
    if recipe.counts_absent:
        return MEMBERS_ARE_REMEMBERED
    if secure and (recipe.distil is None or not recipe.distil.members.are_groups):
        return MEMBERS_ARE_MASKED
    return None


def why_unscored(document: EnsembleDocument) -> str | None:
    """Return why an ensemble cannot be weighed on a data set of one's own, here or anywhere; None where it can."""
    readers = any("scores" in factor.needs for factor in document.weigh.factors_of)
    if not readers or not any(member.group for member in document.members):
        return None
    return (
        f"weights {document.weigh.kind!r} of a group hang on what its clients' discriminators say of each sample, and "
        "scores of the round's own sets alone are kept; predict with the global model (leave out ensemble), or weigh "
        "groups by 'uniform' or 'samples'"
    )


def why_mute(document: EnsembleDocument) -> str | None:
    """Return why an ensemble that is stored cannot predict a data set; None where it can."""
    unscored = why_unscored(document)
    if unscored is not None:
        return unscored
    for member in document.members:
        if not architectures.is_server_side(member.network.architecture):
            return f"the service cannot run {member.network.architecture!r}; download it"
    return None


_README = """# The ensemble of {title}

`ensemble.json` says who predicts together (`members`, weights by digest), what each counts (`weigh`) and how their
outputs become one (`combine`). `blobs/<digest>` are the weights, safetensors files.

With Potstill and its `worker` extra installed, the same bits as in the service:

    potstill predict THIS_FILE.tar data.npz -o predictions.safetensors

or in Python:

    from potstill.ensembles import load_ensemble

    with load_ensemble("THIS_FILE.tar") as ensemble:
        predictions = ensemble.predict(inputs)  # float32 [N, ...]; .logits [N, C], .predicted [N]

A member by itself: `safetensors.torch.load_file("blobs/<digest>")` into the network that its `architecture` and
`options` name; where it has a `base`, that file's tensors belong to the network, too.
"""


def bundle_texts(document: EnsembleDocument, title: str) -> dict[str, str]:
    """Return the texts of an ensemble's bundle, by name; `title` says whose it is."""
    return {README: _README.format(title=title), ENSEMBLE: document.model_dump_json(indent=1) + "\n"}

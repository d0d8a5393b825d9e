"""A recipe's parts: one class per choice, below its slot's. Data only: the arithmetic is in `worker.parts`.

Every name of these modules is one of this package, so a choice that is added to one of them is there.
Sources: FedDF (Lin et al. 2020), FedBE (Chen & Chao 2021), Fed-ET (Cho et al. 2022), FedSDD (Kwan & Song), FedGO.
"""

from contract.recipes.parts.averaging import *  # noqa: F403
from contract.recipes.parts.generators import *  # noqa: F403
from contract.recipes.parts.labelling import *  # noqa: F403
from contract.recipes.parts.learning import *  # noqa: F403

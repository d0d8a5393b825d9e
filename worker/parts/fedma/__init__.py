"""FedMA: clients' networks fused layer by layer, units that do the same thing averaged with one another.

Wang et al. 2020, "Federated Learning with Matched Averaging", Alg. 1; `matching` solves one layer, `networks` goes
through a chain of them (`contract.chains`), `files` does so on clients' files.
"""

from worker.parts.fedma.files import fuse_files as fuse_files
from worker.parts.fedma.matching import Prior as Prior

"""What a model was made from, as it is shown."""

from typing import Any

from pydantic import Field

from contract.wire.common import Digest, Response, Timestamp

_EXAMPLE = {
    "version": 1,
    "kind": "round",
    "part": None,
    "federation": {"id": "fed_01…", "name": "digits"},
    "round": {"id": "rnd_01…", "index": 3},
    "job": {"id": "job_01…", "attempt": 1},
    "spec": {"kind": "round", "seed": 7, "round_index": 3, "recipe": {"name": "fedavg"}},
    "inputs": [
        {
            "place": ["updates", 0, "weights"],
            "digest": "sha256-" + "0" * 64,
            "kind": "update",
            "id": "upd_01…",
            "client_id": "cli_01…",
            "client": "ward-7",
            "num_samples": 1200,
            "weight": 0.25,
        }
    ],
    "outputs": {"models": {"main": "sha256-" + "1" * 64}, "state": None},
    "seeds": {"federation": 7, "derived": [["round", 3, "distil", "main"]]},
    "code": {"version": "0.1.0", "commit": None, "digest": "sha256-" + "2" * 64},
    "environment": {"libraries": {"numpy": "2.3.0", "torch": "2.9.0"}, "device": "cpu", "threads": 2},
}


class Provenance(Response):
    """One publication's document: what it was made from, by which code, on what machine."""

    id: str
    digest: Digest = Field(description="of the document: keys sorted, no blanks, UTF-8")
    document: dict[str, Any] = Field(
        description="`spec` is all that the job was told, a digest for each file; `inputs` says what each of them is "
        "(`place` is where in `spec` it stands); `outputs`, `seeds`, `code` and `environment` follow",
        examples=[_EXAMPLE],
    )
    removed: list[Digest] = Field(description="named by the document, no longer stored")
    replayable: bool = Field(description="whether all inputs are still stored, so that `potstill replay` can run")
    created_at: Timestamp

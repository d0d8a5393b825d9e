"""A document of provenance as it was stored."""

import json
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Publication:
    """One document: what was made from what."""

    title: str
    text: str
    digest: str

    @property
    def document(self) -> dict[str, Any]:
        """The document, parsed."""
        found = json.loads(self.text)
        assert isinstance(found, dict)
        return found

"""What one file of the grid is, and what must become of it."""

from collections.abc import Callable
from dataclasses import dataclass, field

from tests.conformance.files import Notes, Schema

Maker = Callable[[Schema, Notes], bytes]


@dataclass(frozen=True)
class Case:
    """A file and what must become of it.

    Attributes:
        statuses: HTTP statuses that are right; 200 stands for any success.
        named: one of these must be in the answer to a refusal; nothing where any will do.
        headers: of the request.
    """

    name: str
    group: str
    make: Maker
    statuses: tuple[int, ...]
    named: tuple[str, ...] = ()
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def what(self) -> str:
        """What is wrong with the file."""
        return (self.make.__doc__ or "").strip()


class Cases(list[Case]):
    """Cases in the order in which they are written."""

    def add(
        self, group: str, *statuses: int, named: tuple[str, ...] = (), headers: dict[str, str] | None = None
    ) -> Callable[[Maker], Maker]:
        """Return what puts a maker among them."""

        def put(make: Maker) -> Maker:
            self.append(Case(make.__name__, group, make, statuses or (422,), named, headers or {}))
            return make

        return put

"""How many samples a device has, as it declared: what it may declare, and what its updates may tell of."""

from dataclasses import dataclass

from contract.federation import FederationConfig
from contract.wire import devices as wire
from service.domain.errors import invalid_field
from service.persistence.tables import ClientRow


@dataclass(frozen=True)
class Allowed:
    """What a device may tell of: as many samples as it declared, and as one client of the federation counts at most."""

    declared: int
    most: int

    @classmethod
    def of(cls, client: ClientRow, config: FederationConfig) -> "Allowed":
        """Return what a client's next update may tell of."""
        return cls(client.num_samples, config.rounds.max_samples_per_client)

    def check(self, num_samples: int) -> None:
        """Refuse a larger number: it would be the device's weight.

        Raises:
            DomainError: invalid-field.
        """
        _check_most(num_samples, self.most)
        if num_samples > self.declared:
            raise invalid_field(
                "num_samples",
                f"{num_samples} is more than the {self.declared} that this device declared; declare what it has now "
                "(PUT /v1/declaration), then send the update again",
                expected=self.declared,
                actual=num_samples,
            )


def _check_most(num_samples: int, most: int) -> None:
    if num_samples > most:
        raise invalid_field("num_samples", f"{num_samples} is above this federation's {most}")


def check_declared(config: FederationConfig, request: wire.Enrolment | wire.Declaration) -> None:
    """Refuse a number above the federation's, and counts per class that are missing or do not fit it.

    Raises:
        DomainError: invalid-field.
    """
    _check_most(request.num_samples, config.rounds.max_samples_per_client)
    _check_label_counts(config, request)


def _check_label_counts(config: FederationConfig, request: wire.Enrolment | wire.Declaration) -> None:
    """Ask for the counts per class where a rule reads them, and hold them against the task and the samples."""
    counts, num_classes = request.label_counts, config.task.num_classes
    if counts is None:
        if "label_counts" not in config.recipe.needs:
            return
        raise invalid_field("label_counts", "this federation weighs clients by their labels; send the counts per class")
    if config.local.privacy is not None:
        raise invalid_field(
            "label_counts",
            "devices of this federation train with differential privacy, and samples per class would be told without "
            "noise; leave them out",
        )
    if len(counts) != num_classes:
        raise invalid_field("label_counts", f"has {len(counts)} entries, the task {num_classes} classes")
    if sum(counts) != request.num_samples:
        detail = f"sum to {sum(counts)}, and num_samples is {request.num_samples}; count each sample in its class"
        raise invalid_field("label_counts", detail, expected=request.num_samples, actual=sum(counts))


def enrolled_with(row: ClientRow) -> int:
    """Return how many samples a client said that it has when it enrolled."""
    return row.num_samples if row.enrolled_samples is None else row.enrolled_samples

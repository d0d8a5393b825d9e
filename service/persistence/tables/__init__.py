"""The tables. The database is the truth: whatever a 2xx promised is in here or in a blob that a row names."""

from service.persistence.tables.access import AuditRow, IdempotencyRow, SessionRow, TokenRow, UploadRow
from service.persistence.tables.base import Base, UtcDateTime
from service.persistence.tables.federations import ClientRow, DiscriminatorRow, FederationRow, GanUpdateRow, TrafficRow
from service.persistence.tables.models import (
    ChecksumRow,
    CurrentModelRow,
    DatasetRow,
    EnsembleMemberRow,
    EnsembleRow,
    ModelRow,
    NetworkRow,
    PredictionInputRow,
    PredictionRow,
    ProvenanceRow,
)
from service.persistence.tables.rounds import ParticipantRow, RoundRow, SecureMemberRow, UpdateRow
from service.persistence.tables.work import EventRow, JobRow, LabelShardRow, WorkerRow

__all__ = [
    "AuditRow",
    "Base",
    "ChecksumRow",
    "ClientRow",
    "CurrentModelRow",
    "DatasetRow",
    "DiscriminatorRow",
    "EnsembleMemberRow",
    "EnsembleRow",
    "EventRow",
    "FederationRow",
    "GanUpdateRow",
    "IdempotencyRow",
    "JobRow",
    "LabelShardRow",
    "PredictionInputRow",
    "PredictionRow",
    "ProvenanceRow",
    "ModelRow",
    "NetworkRow",
    "ParticipantRow",
    "RoundRow",
    "SecureMemberRow",
    "SessionRow",
    "TokenRow",
    "TrafficRow",
    "UpdateRow",
    "UploadRow",
    "UtcDateTime",
    "WorkerRow",
]

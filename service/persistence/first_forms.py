"""What databases lack that were made with an early form of the first revision.

It was changed three times after there were databases of it, and all of them say that they are at 0001. What they lack
is added before the revisions that follow. The lack showed at 0006: a program without a transaction around its steps
stopped in the midst of that one, and left a database that says 0005. What it left there is removed first.
"""

import sqlalchemy as sa
from alembic.operations import Operations
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Connection

from service.persistence.schema import Columns, columns_of

_UNTIL = ("0001", "0002", "0003", "0004", "0005")
_LATER: dict[str, set[str]] = {
    "clients": {"nonce"},
    "discriminators": {"rejected"},
    "participants": {"prototype"},
    "updates": {"control_reset"},
    "federations": {"gan_round"},
    "gan_updates": {"id"},
}
"""What was not in every form: a table -> columns."""
_LEFT = {"federations": "retention", "updates": "removed_at"}
"""What the half-done step left, beside a table."""
_FIRST_NONCE = "1"  # what devices' tokens were derived with before there were nonces: they stay good


def complete(connection: Connection, revision: str | None) -> None:
    """Make a database that is at some revision what that revision says; most are."""
    if revision not in _UNTIL:
        return
    found = columns_of(connection)
    lacks = {table: names - found.get(table, set()) for table, names in _LATER.items()}
    if not any(lacks.values()):
        return
    op = Operations(MigrationContext.configure(connection))
    if revision == _UNTIL[-1] and "manifests" in found:
        _remove_half_a_step(op, found)
    _add(op, "clients", sa.Column("nonce", sa.String(255), server_default=_FIRST_NONCE, nullable=False), lacks)
    _add(op, "discriminators", sa.Column("rejected", sa.Text(), nullable=True), lacks)
    _add(op, "participants", sa.Column("prototype", sa.String(255), server_default="", nullable=False), lacks)
    _add(op, "updates", sa.Column("control_reset", sa.Boolean(), server_default=sa.false(), nullable=False), lacks)
    _add(op, "federations", sa.Column("gan_round", sa.BigInteger(), server_default="0", nullable=False), lacks)
    if lacks["participants"]:
        op.execute(
            "UPDATE participants SET prototype = "
            "(SELECT clients.prototype FROM clients WHERE clients.id = participants.client_id)"
        )
    if lacks["gan_updates"]:
        _gan_updates(op)


def _remove_half_a_step(op: Operations, found: Columns) -> None:
    op.drop_table("manifests")
    for table, column in _LEFT.items():
        if column in found[table]:
            with op.batch_alter_table(table) as batch:
                batch.drop_column(column)


def _add(op: Operations, table: str, column: sa.Column[object], lacks: Columns) -> None:
    if column.name not in lacks[table]:
        return
    with op.batch_alter_table(table) as batch:
        batch.add_column(column)
    if column.server_default is not None:
        with op.batch_alter_table(table) as batch:
            batch.alter_column(column.name, server_default=None)


def _gan_updates(op: Operations) -> None:
    op.create_table(
        "gan_updates",
        sa.Column("id", sa.String(255), nullable=False),
        sa.Column("federation_id", sa.String(255), nullable=False),
        sa.Column("client_id", sa.String(255), nullable=False),
        sa.Column("gan_round", sa.BigInteger(), nullable=False),
        sa.Column("digest", sa.String(255), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("num_samples", sa.BigInteger(), nullable=False),
        sa.Column("received_at", sa.DateTime(), nullable=False),
        sa.ForeignKeyConstraint(["client_id"], ["clients.id"], name="fk_gan_updates_client_id_clients"),
        sa.ForeignKeyConstraint(["federation_id"], ["federations.id"], name="fk_gan_updates_federation_id_federations"),
        sa.PrimaryKeyConstraint("id", name="pk_gan_updates"),
        sa.UniqueConstraint("client_id", "gan_round", name="uq_gan_updates_client_id_gan_round"),
    )
    op.create_index("ix_gan_updates_federation_id", "gan_updates", ["federation_id"])

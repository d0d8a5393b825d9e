"""rounds that do not wait: where an update began, and which of a device's works it is

Revision ID: 0021
Revises: 0020
"""

import sqlalchemy as sa
from alembic import op

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply."""
    with op.batch_alter_table("rounds") as table:
        table.add_column(sa.Column("buffered", sa.Boolean(), server_default=sa.false(), nullable=False))
    with op.batch_alter_table("updates") as table:
        table.add_column(sa.Column("begun_in", sa.String(length=255), nullable=True))
        table.add_column(sa.Column("turn", sa.BigInteger(), server_default="0", nullable=False))
    op.execute("UPDATE updates SET begun_in = round_id")
    with op.batch_alter_table("updates") as table:
        table.create_foreign_key(op.f("fk_updates_begun_in_rounds"), "rounds", ["begun_in"], ["id"])
        table.drop_constraint(op.f("uq_updates_round_id_client_id"), type_="unique")
        table.create_unique_constraint(op.f("uq_updates_begun_in_client_id_turn"), ["begun_in", "client_id", "turn"])
        table.create_index(op.f("ix_updates_round_id"), ["round_id"], unique=False)


def downgrade() -> None:
    """Take back: of several updates of a client in a round the first stays, as there may be one."""
    op.execute("DELETE FROM updates WHERE id NOT IN (SELECT min(id) FROM updates GROUP BY round_id, client_id)")
    with op.batch_alter_table("updates") as table:
        table.drop_index(op.f("ix_updates_round_id"))
        table.drop_constraint(op.f("uq_updates_begun_in_client_id_turn"), type_="unique")
        table.drop_constraint(op.f("fk_updates_begun_in_rounds"), type_="foreignkey")
        table.create_unique_constraint(op.f("uq_updates_round_id_client_id"), ["round_id", "client_id"])
        table.drop_column("turn")
        table.drop_column("begun_in")
    with op.batch_alter_table("rounds") as table:
        table.drop_column("buffered")

"""rounds that cannot hang: skipped rounds in a row, extensions and restarts, heartbeats, excluded updates

Revision ID: 0002
Revises: 0001
"""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

_MOMENTS = ("asked_at", "fetched_at", "heard_at", "silent_at", "lost_at")


def upgrade() -> None:
    """Apply."""
    with op.batch_alter_table("federations") as batch:
        batch.add_column(sa.Column("skipped_rounds", sa.BigInteger(), server_default="0", nullable=False))
    with op.batch_alter_table("rounds") as batch:
        batch.add_column(sa.Column("extensions", sa.BigInteger(), server_default="0", nullable=False))
        batch.add_column(sa.Column("restarts", sa.BigInteger(), server_default="0", nullable=False))
    with op.batch_alter_table("participants") as batch:
        for name in _MOMENTS:
            batch.add_column(sa.Column(name, sa.DateTime(), nullable=True))
        batch.add_column(sa.Column("progress", sa.JSON(), nullable=True))
        batch.add_column(sa.Column("replaces", sa.String(length=255), nullable=True))
        batch.create_index(op.f("ix_participants_silent_at"), ["silent_at"])
    with op.batch_alter_table("updates") as batch:
        batch.add_column(sa.Column("excluded", sa.Text(), nullable=True))


def downgrade() -> None:
    """Take back."""
    with op.batch_alter_table("updates") as batch:
        batch.drop_column("excluded")
    with op.batch_alter_table("participants") as batch:
        batch.drop_index(op.f("ix_participants_silent_at"))
        for name in ("replaces", "progress", *reversed(_MOMENTS)):
            batch.drop_column(name)
    with op.batch_alter_table("rounds") as batch:
        batch.drop_column("restarts")
        batch.drop_column("extensions")
    with op.batch_alter_table("federations") as batch:
        batch.drop_column("skipped_rounds")

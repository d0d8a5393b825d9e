"""event feed; when a worker was missed

Revision ID: 0004
Revises: 0003
"""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply."""
    op.create_table(
        "events",
        sa.Column("sequence", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("at", sa.DateTime(), nullable=False),
        sa.Column("kind", sa.String(length=255), nullable=False),
        sa.Column("federation_id", sa.String(length=255), nullable=True),
        sa.Column("data", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("sequence", name=op.f("pk_events")),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_events_federation_id_sequence", "events", ["federation_id", "sequence"])
    op.create_index(op.f("ix_events_at"), "events", ["at"])
    with op.batch_alter_table("workers") as batch:
        batch.add_column(sa.Column("lost_at", sa.DateTime(), nullable=True))


def downgrade() -> None:
    """Take back."""
    with op.batch_alter_table("workers") as batch:
        batch.drop_column("lost_at")
    op.drop_index(op.f("ix_events_at"), table_name="events")
    op.drop_index("ix_events_federation_id_sequence", table_name="events")
    op.drop_table("events")

"""updates of a client in a round are looked up, and the trace that an update or a job came from

Revision ID: 0024
Revises: 0023
"""

import sqlalchemy as sa
from alembic import op

revision = "0024"
down_revision = "0023"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply."""
    op.create_index(op.f("ix_updates_round_id_client_id"), "updates", ["round_id", "client_id"])
    op.drop_index(op.f("ix_updates_round_id"), table_name="updates")  # the new one begins with it
    op.add_column("updates", sa.Column("traceparent", sa.String(length=55), nullable=True))
    op.add_column("jobs", sa.Column("traceparent", sa.String(length=55), nullable=True))


def downgrade() -> None:
    """Take back."""
    op.drop_column("jobs", "traceparent")
    op.drop_column("updates", "traceparent")
    op.create_index(op.f("ix_updates_round_id"), "updates", ["round_id"])
    op.drop_index(op.f("ix_updates_round_id_client_id"), table_name="updates")

"""groups run ahead of a distillation

Revision ID: 0008
Revises: 0007
"""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply."""
    with op.batch_alter_table("rounds") as table:
        table.add_column(sa.Column("groups_published_at", sa.DateTime(), nullable=True))
        table.add_column(sa.Column("waits_for", sa.String(length=255), nullable=True))
        table.create_foreign_key(op.f("fk_rounds_waits_for_rounds"), "rounds", ["waits_for"], ["id"])


def downgrade() -> None:
    """Take back."""
    with op.batch_alter_table("rounds") as table:
        table.drop_constraint(op.f("fk_rounds_waits_for_rounds"), type_="foreignkey")
        table.drop_column("waits_for")
        table.drop_column("groups_published_at")

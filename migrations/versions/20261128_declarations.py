"""clients declare how many samples they have

Revision ID: 0015
Revises: 0014
"""

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply."""
    with op.batch_alter_table("clients") as table:
        table.add_column(sa.Column("enrolled_samples", sa.BigInteger(), nullable=True))
        table.add_column(sa.Column("declared_at", sa.DateTime(), nullable=True))


def downgrade() -> None:
    """Take back."""
    with op.batch_alter_table("clients") as table:
        table.drop_column("declared_at")
        table.drop_column("enrolled_samples")

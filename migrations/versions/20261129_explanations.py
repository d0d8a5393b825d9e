"""why a round came out as it did, apart from its figures

Revision ID: 0022
Revises: 0021
"""

import sqlalchemy as sa
from alembic import op

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply."""
    op.add_column("rounds", sa.Column("explanation", sa.JSON(), nullable=True))


def downgrade() -> None:
    """Take back."""
    op.drop_column("rounds", "explanation")

"""the smallest and the largest token id of data sets

Revision ID: 0020
Revises: 0019
"""

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply."""
    op.add_column("datasets", sa.Column("token_ids", sa.JSON(), nullable=True))


def downgrade() -> None:
    """Take back."""
    op.drop_column("datasets", "token_ids")

"""labels of data sets that are more than one class a sample

Revision ID: 0018
Revises: 0017
"""

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply."""
    op.add_column("datasets", sa.Column("label_shape", sa.JSON(), nullable=True))
    op.add_column("datasets", sa.Column("label_dtype", sa.String(length=255), nullable=True))


def downgrade() -> None:
    """Take back."""
    op.drop_column("datasets", "label_dtype")
    op.drop_column("datasets", "label_shape")

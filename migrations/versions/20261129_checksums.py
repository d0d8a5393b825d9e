"""checksums of blobs

Revision ID: 0019
Revises: 0018
"""

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply."""
    op.create_table(
        "blob_checksums",
        sa.Column("digest", sa.String(length=255), nullable=False),
        sa.Column("checksum", sa.String(length=255), nullable=False),
        sa.PrimaryKeyConstraint("digest", name=op.f("pk_blob_checksums")),
    )


def downgrade() -> None:
    """Take back."""
    op.drop_table("blob_checksums")

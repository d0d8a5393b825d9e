"""networks that are documents

Revision ID: 0017
Revises: 0016
"""

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply."""
    op.create_table(
        "networks",
        sa.Column("id", sa.String(length=255), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("digest", sa.String(length=255), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("facts", sa.JSON(), nullable=False),
        sa.Column("tensors", sa.JSON(), nullable=False),
        sa.Column("weights", sa.String(length=255), nullable=True),
        sa.Column("created_at", sa.DateTime(), nullable=False),
        sa.ForeignKeyConstraint(["weights"], ["models.id"], name=op.f("fk_networks_weights_models")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_networks")),
        sa.UniqueConstraint("digest", name=op.f("uq_networks_digest")),
        sa.UniqueConstraint("name", name=op.f("uq_networks_name")),
    )


def downgrade() -> None:
    """Take back."""
    op.drop_table("networks")

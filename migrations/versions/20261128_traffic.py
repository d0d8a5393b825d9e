"""bytes of files by device, round and file

Revision ID: 0014
Revises: 0013
"""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply."""
    op.create_table(
        "traffic",
        sa.Column("federation_id", sa.String(255), nullable=False),
        sa.Column("round_index", sa.BigInteger(), nullable=False),
        sa.Column("client_id", sa.String(255), nullable=False),
        sa.Column("item", sa.String(255), nullable=False),
        sa.Column("down", sa.BigInteger(), nullable=False),
        sa.Column("up", sa.BigInteger(), nullable=False),
        sa.Column("requests", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["federation_id"], ["federations.id"], name="fk_traffic_federation_id_federations"),
        sa.PrimaryKeyConstraint("federation_id", "round_index", "client_id", "item", name="pk_traffic"),
    )


def downgrade() -> None:
    """Take back."""
    op.drop_table("traffic")

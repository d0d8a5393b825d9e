"""shards of a round's labels, which several workers make

Revision ID: 0023
Revises: 0022
"""

import sqlalchemy as sa
from alembic import op

revision = "0023"
down_revision = "0022"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply."""
    op.create_table(
        "label_shards",
        sa.Column("job_id", sa.String(length=255), nullable=False),
        sa.Column("federation_id", sa.String(length=255), nullable=False),
        sa.Column("round_id", sa.String(length=255), nullable=False),
        sa.Column("teachers", sa.JSON(), nullable=False),
        sa.Column("part", sa.BigInteger(), nullable=False),
        sa.Column("parts", sa.BigInteger(), nullable=False),
        sa.Column("digest", sa.String(length=255), nullable=True),
        sa.Column("size", sa.BigInteger(), nullable=True),
        sa.Column("seconds", sa.Double(), nullable=True),
        sa.ForeignKeyConstraint(
            ["federation_id"], ["federations.id"], name=op.f("fk_label_shards_federation_id_federations")
        ),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_label_shards_job_id_jobs")),
        sa.ForeignKeyConstraint(["round_id"], ["rounds.id"], name=op.f("fk_label_shards_round_id_rounds")),
        sa.PrimaryKeyConstraint("job_id", name=op.f("pk_label_shards")),
    )
    op.create_index(op.f("ix_label_shards_digest"), "label_shards", ["digest"])
    op.create_index(op.f("ix_label_shards_federation_id"), "label_shards", ["federation_id"])
    op.create_index(op.f("ix_label_shards_round_id"), "label_shards", ["round_id"])


def downgrade() -> None:
    """Take back."""
    op.drop_table("label_shards")

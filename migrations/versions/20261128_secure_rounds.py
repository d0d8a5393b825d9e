"""secure rounds: their phase, and what their devices say to each other

Revision ID: 0011
Revises: 0010
"""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply."""
    with op.batch_alter_table("rounds") as table:
        table.add_column(sa.Column("secure_session", sa.String(length=255), nullable=True))
        table.add_column(sa.Column("secure_phase", sa.String(length=255), nullable=True))
        table.add_column(sa.Column("secure_until", sa.DateTime(), nullable=True))
    op.create_table(
        "secure_members",
        sa.Column("round_id", sa.String(length=255), nullable=False),
        sa.Column("client_id", sa.String(length=255), nullable=False),
        sa.Column("keys", sa.JSON(), nullable=False),
        sa.Column("sealed", sa.JSON(), nullable=True),
        sa.Column("survives", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("signature", sa.String(length=255), nullable=True),
        sa.Column("revealed", sa.JSON(), nullable=True),
        sa.ForeignKeyConstraint(["client_id"], ["clients.id"], name=op.f("fk_secure_members_client_id_clients")),
        sa.ForeignKeyConstraint(["round_id"], ["rounds.id"], name=op.f("fk_secure_members_round_id_rounds")),
        sa.PrimaryKeyConstraint("round_id", "client_id", name=op.f("pk_secure_members")),
    )


def downgrade() -> None:
    """Take back."""
    op.drop_table("secure_members")
    with op.batch_alter_table("rounds") as table:
        table.drop_column("secure_until")
        table.drop_column("secure_phase")
        table.drop_column("secure_session")

"""documents of provenance by their name; a manifest is what an update is checked against

Revision ID: 0010
Revises: 0009
"""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

_COLUMNS = ("id", "federation_id", "round_id", "job_id", "digest", "document", "created_at")
_MADE = ("discriminators", "models")


def upgrade() -> None:
    """Apply."""
    _rename("manifests", "manifest_id", "provenance", "provenance_id")


def downgrade() -> None:
    """Take back."""
    _rename("provenance", "provenance_id", "manifests", "manifest_id")


def _rename(table: str, column: str, to_table: str, to_column: str) -> None:
    """Move the rows into a table of another name: constraints are named after it, and SQLite cannot rename those."""
    op.create_table(
        to_table,
        sa.Column("id", sa.String(length=255), nullable=False),
        sa.Column("federation_id", sa.String(length=255), nullable=False),
        sa.Column("round_id", sa.String(length=255), nullable=True),
        sa.Column("job_id", sa.String(length=255), nullable=False),
        sa.Column("digest", sa.String(length=255), nullable=False),
        sa.Column("document", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(), nullable=False),
        sa.ForeignKeyConstraint(
            ["federation_id"], ["federations.id"], name=op.f(f"fk_{to_table}_federation_id_federations")
        ),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f(f"fk_{to_table}_job_id_jobs")),
        sa.ForeignKeyConstraint(["round_id"], ["rounds.id"], name=op.f(f"fk_{to_table}_round_id_rounds")),
        sa.PrimaryKeyConstraint("id", name=op.f(f"pk_{to_table}")),
    )
    names = ", ".join(_COLUMNS)
    op.execute(f"INSERT INTO {to_table} ({names}) SELECT {names} FROM {table}")
    for made in _MADE:
        with op.batch_alter_table(made) as batch:
            batch.drop_constraint(op.f(f"fk_{made}_{column}_{table}"), type_="foreignkey")
            batch.alter_column(column, new_column_name=to_column, existing_type=sa.String(length=255))
        with op.batch_alter_table(made) as batch:
            batch.create_foreign_key(op.f(f"fk_{made}_{to_column}_{to_table}"), to_table, [to_column], ["id"])
    op.drop_table(table)
    for indexed in ("federation_id", "job_id", "round_id"):
        op.create_index(op.f(f"ix_{to_table}_{indexed}"), to_table, [indexed])

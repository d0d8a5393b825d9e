"""documents of provenance; what is kept of a federation, and when a blob was let go

Revision ID: 0006
Revises: 0005
"""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

_LET_GO = ("updates", "gan_updates", "discriminators", "models")
_MADE = ("discriminators", "models")
_LIVE = "'created', 'preparing', 'training_generator', 'collecting_discriminators', 'scoring', 'running', 'paused'"


def upgrade() -> None:
    op.create_table(
        "manifests",
        sa.Column("id", sa.String(length=255), nullable=False),
        sa.Column("federation_id", sa.String(length=255), nullable=False),
        sa.Column("round_id", sa.String(length=255), nullable=True),
        sa.Column("job_id", sa.String(length=255), nullable=False),
        sa.Column("digest", sa.String(length=255), nullable=False),
        sa.Column("document", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(), nullable=False),
        sa.ForeignKeyConstraint(
            ["federation_id"], ["federations.id"], name=op.f("fk_manifests_federation_id_federations")
        ),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_manifests_job_id_jobs")),
        sa.ForeignKeyConstraint(["round_id"], ["rounds.id"], name=op.f("fk_manifests_round_id_rounds")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_manifests")),
    )
    for column in ("federation_id", "job_id", "round_id"):
        op.create_index(op.f(f"ix_manifests_{column}"), "manifests", [column])
    with op.batch_alter_table("federations") as batch:
        batch.add_column(sa.Column("retention", sa.JSON(), nullable=True))
    for table in _LET_GO:
        with op.batch_alter_table(table) as batch:
            batch.add_column(sa.Column("removed_at", sa.DateTime(), nullable=True))
            if table in _MADE:
                batch.add_column(sa.Column("manifest_id", sa.String(length=255), nullable=True))
                batch.create_foreign_key(
                    op.f(f"fk_{table}_manifest_id_manifests"), "manifests", ["manifest_id"], ["id"]
                )
    # Until now a delivery's blob stayed only as long as it was to be fused.
    op.execute(
        "UPDATE updates SET removed_at = received_at WHERE round_id NOT IN ("
        "SELECT rounds.id FROM rounds JOIN federations ON federations.id = rounds.federation_id "
        'WHERE rounds."index" = federations.round_index '
        f"AND rounds.state IN ('collecting', 'aggregating', 'failed') AND federations.state IN ({_LIVE}))"
    )
    op.execute(
        "UPDATE gan_updates SET removed_at = received_at WHERE id NOT IN ("
        "SELECT gan_updates.id FROM gan_updates JOIN federations ON federations.id = gan_updates.federation_id "
        f"WHERE gan_updates.gan_round = federations.gan_round AND federations.state IN ({_LIVE}, 'failed'))"
    )


def downgrade() -> None:
    for table in reversed(_LET_GO):
        with op.batch_alter_table(table) as batch:
            if table in _MADE:
                batch.drop_constraint(op.f(f"fk_{table}_manifest_id_manifests"), type_="foreignkey")
                batch.drop_column("manifest_id")
            batch.drop_column("removed_at")
    with op.batch_alter_table("federations") as batch:
        batch.drop_column("retention")
    op.drop_table("manifests")

"""ensembles that rounds keep, and predictions with them or with one model

Revision ID: 0016
Revises: 0015
"""

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply."""
    op.create_table(
        "ensembles",
        sa.Column("id", sa.String(length=255), nullable=False),
        sa.Column("federation_id", sa.String(length=255), nullable=False),
        sa.Column("round_id", sa.String(length=255), nullable=False),
        sa.Column("document", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.DateTime(), nullable=False),
        sa.ForeignKeyConstraint(
            ["federation_id"], ["federations.id"], name=op.f("fk_ensembles_federation_id_federations")
        ),
        sa.ForeignKeyConstraint(["round_id"], ["rounds.id"], name=op.f("fk_ensembles_round_id_rounds")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_ensembles")),
        sa.UniqueConstraint("round_id", name=op.f("uq_ensembles_round_id")),
    )
    op.create_index(op.f("ix_ensembles_federation_id"), "ensembles", ["federation_id"])
    op.create_table(
        "ensemble_members",
        sa.Column("ensemble_id", sa.String(length=255), nullable=False),
        sa.Column("position", sa.BigInteger(), nullable=False),
        sa.Column("federation_id", sa.String(length=255), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("client_id", sa.String(length=255), nullable=True),
        sa.Column("digest", sa.String(length=255), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("removed_at", sa.DateTime(), nullable=True),
        sa.ForeignKeyConstraint(
            ["ensemble_id"], ["ensembles.id"], name=op.f("fk_ensemble_members_ensemble_id_ensembles")
        ),
        sa.ForeignKeyConstraint(
            ["federation_id"], ["federations.id"], name=op.f("fk_ensemble_members_federation_id_federations")
        ),
        sa.ForeignKeyConstraint(["client_id"], ["clients.id"], name=op.f("fk_ensemble_members_client_id_clients")),
        sa.PrimaryKeyConstraint("ensemble_id", "position", name=op.f("pk_ensemble_members")),
    )
    op.create_index(op.f("ix_ensemble_members_client_id"), "ensemble_members", ["client_id"])
    op.create_index(op.f("ix_ensemble_members_digest"), "ensemble_members", ["digest"])
    op.create_index(op.f("ix_ensemble_members_federation_id"), "ensemble_members", ["federation_id"])
    op.create_table(
        "predictions",
        sa.Column("id", sa.String(length=255), nullable=False),
        sa.Column("federation_id", sa.String(length=255), nullable=False),
        sa.Column("job_id", sa.String(length=255), nullable=False),
        sa.Column("round_id", sa.String(length=255), nullable=True),
        sa.Column("model_id", sa.String(length=255), nullable=True),
        sa.Column("dataset", sa.String(length=255), nullable=False),
        sa.Column("num_samples", sa.BigInteger(), nullable=False),
        sa.Column("document", sa.JSON(), nullable=False),
        sa.Column("digest", sa.String(length=255), nullable=True),
        sa.Column("size", sa.BigInteger(), nullable=True),
        sa.Column("metrics", sa.JSON(), nullable=False),
        sa.Column("provenance_id", sa.String(length=255), nullable=True),
        sa.Column("created_at", sa.DateTime(), nullable=False),
        sa.Column("removed_at", sa.DateTime(), nullable=True),
        sa.ForeignKeyConstraint(
            ["federation_id"], ["federations.id"], name=op.f("fk_predictions_federation_id_federations")
        ),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_predictions_job_id_jobs")),
        sa.ForeignKeyConstraint(["round_id"], ["rounds.id"], name=op.f("fk_predictions_round_id_rounds")),
        sa.ForeignKeyConstraint(["model_id"], ["models.id"], name=op.f("fk_predictions_model_id_models")),
        sa.ForeignKeyConstraint(
            ["provenance_id"], ["provenance.id"], name=op.f("fk_predictions_provenance_id_provenance")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_predictions")),
        sa.UniqueConstraint("job_id", name=op.f("uq_predictions_job_id")),
    )
    op.create_index(op.f("ix_predictions_digest"), "predictions", ["digest"])
    op.create_index(op.f("ix_predictions_federation_id"), "predictions", ["federation_id"])
    op.create_table(
        "prediction_inputs",
        sa.Column("prediction_id", sa.String(length=255), nullable=False),
        sa.Column("digest", sa.String(length=255), nullable=False),
        sa.ForeignKeyConstraint(
            ["prediction_id"], ["predictions.id"], name=op.f("fk_prediction_inputs_prediction_id_predictions")
        ),
        sa.PrimaryKeyConstraint("prediction_id", "digest", name=op.f("pk_prediction_inputs")),
    )
    op.create_index(op.f("ix_prediction_inputs_digest"), "prediction_inputs", ["digest"])


def downgrade() -> None:
    """Take back."""
    op.drop_table("prediction_inputs")
    op.drop_table("predictions")
    op.drop_table("ensemble_members")
    op.drop_table("ensembles")

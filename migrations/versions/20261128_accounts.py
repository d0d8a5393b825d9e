"""tokens that expire and rotate, join tokens with limits, the audit log

Revision ID: 0007
Revises: 0006
"""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

_CREDENTIALS = ("clients", "tokens")
_SQLITE = (
    "CREATE TRIGGER audit_no_update BEFORE UPDATE ON audit BEGIN "
    "SELECT RAISE(ABORT, 'the audit log is append-only'); END",
    "CREATE TRIGGER audit_no_delete BEFORE DELETE ON audit WHEN OLD.at > datetime('now', '-30 days') BEGIN "
    "SELECT RAISE(ABORT, 'the audit log keeps 30 days at least'); END",
)
_POSTGRESQL = (
    "CREATE FUNCTION audit_refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
    "IF TG_OP = 'UPDATE' THEN RAISE EXCEPTION 'the audit log is append-only'; END IF; "
    "IF OLD.at > (now() AT TIME ZONE 'utc') - interval '30 days' "
    "THEN RAISE EXCEPTION 'the audit log keeps 30 days at least'; END IF; "
    "RETURN OLD; END $$",
    "CREATE TRIGGER audit_append_only BEFORE UPDATE OR DELETE ON audit FOR EACH ROW EXECUTE FUNCTION audit_refuse()",
)


def upgrade() -> None:
    """Apply."""
    for table in _CREDENTIALS:
        op.add_column(table, sa.Column("expires_at", sa.DateTime(), nullable=True))
        op.add_column(table, sa.Column("next_nonce", sa.String(length=255), nullable=True))
        op.add_column(table, sa.Column("next_hash", sa.String(length=255), nullable=True))
        op.add_column(table, sa.Column("next_expires_at", sa.DateTime(), nullable=True))
        op.create_index(f"ix_{table}_next_hash", table, ["next_hash"], unique=True)
    op.add_column("tokens", sa.Column("lifetime_seconds", sa.BigInteger(), nullable=True))
    op.add_column("tokens", sa.Column("last_used_at", sa.DateTime(), nullable=True))
    op.add_column("federations", sa.Column("join_uses", sa.BigInteger(), nullable=False, server_default="0"))
    op.add_column("federations", sa.Column("join_max_uses", sa.BigInteger(), nullable=True))
    op.add_column("federations", sa.Column("join_expires_at", sa.DateTime(), nullable=True))
    op.create_table(
        "audit",
        sa.Column("seq", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("at", sa.DateTime(), nullable=False),
        sa.Column("actor_id", sa.String(length=255), nullable=False),
        sa.Column("actor_name", sa.String(length=255), nullable=False),
        sa.Column("role", sa.String(length=255), nullable=False),
        sa.Column("address", sa.String(length=255), nullable=False),
        sa.Column("action", sa.String(length=255), nullable=False),
        sa.Column("target", sa.String(length=255), nullable=False),
        sa.Column("federation_id", sa.String(length=255), nullable=True),
        sa.Column("request_id", sa.String(length=255), nullable=False),
        sa.Column("outcome", sa.String(length=255), nullable=False),
        sa.Column("detail", sa.JSON(), nullable=False),
        sa.Column("previous_hash", sa.String(length=255), nullable=False),
        sa.Column("hash", sa.String(length=255), nullable=False),
        sa.PrimaryKeyConstraint("seq", name=op.f("pk_audit")),
    )
    for column in ("at", "actor_id", "action", "federation_id"):
        op.create_index(f"ix_audit_{column}", "audit", [column])
    for statement in _SQLITE if op.get_bind().dialect.name == "sqlite" else _POSTGRESQL:
        op.execute(statement)


def downgrade() -> None:
    """Take it back; the audit log is lost."""
    op.drop_table("audit")
    if op.get_bind().dialect.name != "sqlite":
        op.execute("DROP FUNCTION audit_refuse()")
    for column in ("join_expires_at", "join_max_uses", "join_uses"):
        op.drop_column("federations", column)
    for column in ("last_used_at", "lifetime_seconds"):
        op.drop_column("tokens", column)
    for table in _CREDENTIALS:
        op.drop_index(f"ix_{table}_next_hash", table)
        for column in ("next_expires_at", "next_hash", "next_nonce", "expires_at"):
            op.drop_column(table, column)

"""Runs revisions on a connection, and in the transaction, that `service.persistence.migrate` hands over."""

from typing import Any

from alembic import context

from service.persistence.tables import Base, UtcDateTime


def render_item(kind: str, item: Any, autogen_context: Any) -> str | bool:
    """Write our own column types so that revisions need no import of ours."""
    if kind == "type" and isinstance(item, UtcDateTime):
        return "sa.DateTime()"
    return False


context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=Base.metadata,
    render_as_batch=True,
    render_item=render_item,
    on_version_apply=context.config.attributes.get("on_step"),
)
with context.begin_transaction():
    context.run_migrations()

"""Alembic revisions: one tree for SQLite and PostgreSQL."""

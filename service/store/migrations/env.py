"""Alembic's entry: runs on the connection that `service.store.migrations` hands over."""

from alembic import context

from service.store.database import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata)
with context.begin_transaction():
    context.run_migrations()

"""The SQL store; SQLite by default, Postgres by URL."""

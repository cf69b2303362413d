"""The settings that a job was posted under; unknown for older ones."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns."""
    op.add_column("jobs", sa.Column("setup", sa.JSON))
    op.add_column("jobs", sa.Column("setup_key", sa.String(32)))

"""Replicas beat, not jobs."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the table; the heartbeats of jobs go."""
    op.create_table(
        "replicas",
        sa.Column("id", sa.String(255), nullable=False),
        sa.Column("lanes", sa.JSON, nullable=False),
        sa.Column("beat", sa.Integer, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_replicas"),
    )
    op.drop_column("jobs", "heartbeat")

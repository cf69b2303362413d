"""Tables for live replicas and for the writes of the readiness check."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "replicas",
        sa.Column("id", sa.String(255), primary_key=True),
        sa.Column("seen_at", sa.Float, nullable=False),
    )
    op.create_table("write_checks", sa.Column("id", sa.Integer, primary_key=True, autoincrement=True))


def downgrade() -> None:
    """Drop the tables."""
    op.drop_table("replicas")
    op.drop_table("write_checks")

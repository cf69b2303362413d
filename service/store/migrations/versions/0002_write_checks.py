"""A table that readiness writes to."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the table."""
    op.create_table("write_checks", sa.Column("id", sa.Integer, primary_key=True, autoincrement=True))


def downgrade() -> None:
    """Drop the table."""
    op.drop_table("write_checks")

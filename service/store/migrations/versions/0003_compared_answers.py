"""A column for what an LLM says of each two answers of a row."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column."""
    op.add_column("dev_rows", sa.Column("compared", sa.JSON(none_as_null=True)))


def downgrade() -> None:
    """Drop the column."""
    op.drop_column("dev_rows", "compared")

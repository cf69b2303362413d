"""The list of calibrations shows the error of raw scores, too."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column. Calibrations from before have null in it."""
    op.add_column("calibrations", sa.Column("raw_projection_ece", sa.Float))


def downgrade() -> None:
    """Drop the column."""
    op.drop_column("calibrations", "raw_projection_ece")

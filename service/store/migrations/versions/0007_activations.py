"""Who activated a calibration, and why; its error; what became of each row: refused, or judged."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns; they are null for what was kept by earlier releases."""
    op.add_column("activations", sa.Column("by", sa.JSON, nullable=True))
    op.add_column("activations", sa.Column("reason", sa.Text, nullable=True))
    op.add_column("activations", sa.Column("replaced", sa.String(40), nullable=True))
    op.add_column("calibrations", sa.Column("projection_ece", sa.Float, nullable=True))
    op.add_column("dev_rows", sa.Column("refused", sa.JSON, nullable=True))
    op.add_column("dev_rows", sa.Column("verdict", sa.JSON, nullable=True))
    op.add_column("jobs", sa.Column("refused_rows", sa.Integer, nullable=False, server_default="0"))

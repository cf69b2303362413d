"""What the rows of a calibration are like; what a job says of activation."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the table, and add the columns."""
    op.create_table(
        "conformal_references",
        sa.Column("calibration_id", sa.String(40), nullable=False),
        sa.Column("content", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("calibration_id", name="pk_conformal_references"),
        sa.ForeignKeyConstraint(
            ["calibration_id"], ["calibrations.id"], name="fk_conformal_references_calibration_id"
        ),
    )
    op.add_column("jobs", sa.Column("activated", sa.Boolean))
    op.add_column("jobs", sa.Column("decision", sa.Text))

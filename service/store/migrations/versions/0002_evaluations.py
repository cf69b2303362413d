"""Results of evaluations."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "evaluations",
        sa.Column("job_id", sa.String(40), nullable=False),
        sa.Column("results", sa.JSON, nullable=False),
        sa.PrimaryKeyConstraint("job_id", name="pk_evaluations"),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_evaluations_job_id"),
    )

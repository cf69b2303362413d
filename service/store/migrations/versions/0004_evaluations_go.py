"""Evaluations are no jobs any more: delete their jobs, rows and results."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Delete the evaluation jobs with their rows, and drop the table of results."""
    op.drop_table("evaluations")
    op.execute("DELETE FROM dev_rows WHERE job_id IN (SELECT id FROM jobs WHERE kind = 'evaluate')")
    op.execute("DELETE FROM jobs WHERE kind = 'evaluate'")


def downgrade() -> None:
    """Create the table of results."""
    op.create_table(
        "evaluations",
        sa.Column("job_id", sa.String(40), sa.ForeignKey("jobs.id"), primary_key=True),
        sa.Column("results", sa.JSON, nullable=False),
    )

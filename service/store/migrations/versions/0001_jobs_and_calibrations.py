"""Jobs, their rows, calibrations, reports and activations."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_TIME = sa.DateTime(timezone=True)


def upgrade() -> None:
    """Create the first tables."""
    _jobs()
    _dev_rows()
    _calibrations()
    _activations()


def _jobs() -> None:
    op.create_table(
        "jobs",
        sa.Column("id", sa.String(40), nullable=False),
        sa.Column("kind", sa.String(20), nullable=False),
        sa.Column("state", sa.String(20), nullable=False),
        sa.Column("options", sa.JSON, nullable=False),
        sa.Column("fingerprint", sa.JSON),
        sa.Column("num_rows", sa.Integer, nullable=False),
        sa.Column("content_hash", sa.String(64), nullable=False),
        sa.Column("idempotency_key", sa.String(255)),
        sa.Column("stage", sa.String(20)),
        sa.Column("done", sa.Integer, nullable=False),
        sa.Column("total", sa.Integer, nullable=False),
        sa.Column("eta_s", sa.Float),
        sa.Column("note", sa.Text, nullable=False),
        sa.Column("error_code", sa.String(40)),
        sa.Column("error_detail", sa.Text),
        sa.Column("calibration_id", sa.String(40)),
        sa.Column("owner", sa.String(255)),
        sa.Column("epoch", sa.Integer, nullable=False),
        sa.Column("heartbeat", sa.Integer, nullable=False),
        sa.Column("created_at", _TIME, nullable=False),
        sa.Column("started_at", _TIME),
        sa.Column("finished_at", _TIME),
        sa.PrimaryKeyConstraint("id", name="pk_jobs"),
        sa.UniqueConstraint("idempotency_key", name="uq_jobs_idempotency_key"),
    )
    op.create_index("ix_jobs_state", "jobs", ["state"])


def _dev_rows() -> None:
    op.create_table(
        "dev_rows",
        sa.Column("job_id", sa.String(40), nullable=False),
        sa.Column("line", sa.Integer, nullable=False),
        sa.Column("content", sa.JSON, nullable=False),
        sa.Column("draws", sa.JSON, nullable=False),
        sa.Column("complete", sa.Boolean, nullable=False),
        sa.PrimaryKeyConstraint("job_id", "line", name="pk_dev_rows"),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_dev_rows_job_id", ondelete="CASCADE"),
    )


def _calibrations() -> None:
    op.create_table(
        "calibrations",
        sa.Column("id", sa.String(40), nullable=False),
        sa.Column("job_id", sa.String(40)),
        sa.Column("fingerprint_key", sa.String(32), nullable=False),
        sa.Column("body", sa.JSON, nullable=False),
        sa.Column("num_rows", sa.Integer, nullable=False),
        sa.Column("created_at", _TIME, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_calibrations"),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_calibrations_job_id"),
    )
    op.create_index("ix_calibrations_job_id", "calibrations", ["job_id"])
    op.create_index("ix_calibrations_fingerprint_key", "calibrations", ["fingerprint_key"])
    op.create_table(
        "reports",
        sa.Column("calibration_id", sa.String(40), nullable=False),
        sa.Column("report", sa.JSON, nullable=False),
        sa.PrimaryKeyConstraint("calibration_id", name="pk_reports"),
        sa.ForeignKeyConstraint(["calibration_id"], ["calibrations.id"], name="fk_reports_calibration_id"),
    )


def _activations() -> None:
    op.create_table(
        "activations",
        sa.Column("id", sa.Integer, autoincrement=True, nullable=False),
        sa.Column("calibration_id", sa.String(40), nullable=False),
        sa.Column("fingerprint_key", sa.String(32), nullable=False),
        sa.Column("current", sa.Boolean, nullable=False),
        sa.Column("activated_at", _TIME, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_activations"),
        sa.ForeignKeyConstraint(
            ["calibration_id"], ["calibrations.id"], name="fk_activations_calibration_id"
        ),
        sqlite_autoincrement=True,
    )
    op.create_index(
        "uq_activations_current",
        "activations",
        ["fingerprint_key"],
        unique=True,
        sqlite_where=sa.column("current"),
        postgresql_where=sa.column("current"),
    )

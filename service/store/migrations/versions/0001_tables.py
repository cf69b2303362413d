"""All tables, as of 0.3.0."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_TIME = sa.DateTime(timezone=True)


def upgrade() -> None:
    """Create the tables."""
    _jobs()
    _kept()
    _keys()
    _calibrations()
    _dev_rows()
    _evaluations()
    _activations()
    _conformal_references()
    _reports()


def _jobs() -> None:
    op.create_table(
        "jobs",
        sa.Column("id", sa.String(40), nullable=False),
        sa.Column("kind", sa.String(20), nullable=False),
        sa.Column("state", sa.String(20), nullable=False),
        sa.Column("options", sa.JSON, nullable=False),
        sa.Column("setup", sa.JSON, nullable=False),
        sa.Column("setup_key", sa.String(32), nullable=False),
        sa.Column("fingerprint", sa.JSON(none_as_null=True)),
        sa.Column("num_rows", sa.Integer, nullable=False),
        sa.Column("content_hash", sa.String(64), nullable=False),
        sa.Column("idempotency_key", sa.String(255)),
        sa.Column("stage", sa.String(20)),
        sa.Column("done", sa.Integer, nullable=False),
        sa.Column("total", sa.Integer, nullable=False),
        sa.Column("stage_began_at", _TIME),
        sa.Column("stage_began_done", sa.Integer),
        sa.Column("progressed_at", _TIME),
        sa.Column("note", sa.Text, nullable=False),
        sa.Column("error_code", sa.String(40)),
        sa.Column("error_detail", sa.Text),
        sa.Column("calibration_id", sa.String(40)),
        sa.Column("activated", sa.Boolean),
        sa.Column("decision", sa.Text),
        sa.Column("created_at", _TIME, nullable=False),
        sa.Column("started_at", _TIME),
        sa.Column("finished_at", _TIME),
        sa.Column("refused_rows", sa.Integer, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_jobs"),
        sa.UniqueConstraint("idempotency_key", name="uq_jobs_idempotency_key"),
    )
    op.create_index("ix_jobs_state", "jobs", ["state"])


def _kept() -> None:
    op.create_table(
        "kept",
        sa.Column(
            "number", sa.BigInteger().with_variant(sa.Integer, "sqlite"), autoincrement=True, nullable=False
        ),
        sa.Column("id", sa.String(255), nullable=False),
        sa.Column("owner", sa.String(64), nullable=False),
        sa.Column("expires", sa.Float, nullable=False),
        sa.Column("content", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("number", name="pk_kept"),
    )
    op.create_index("ix_kept_expires", "kept", ["expires"])
    op.create_index("ix_kept_names", "kept", ["owner", "id"])


def _keys() -> None:
    op.create_table(
        "keys",
        sa.Column("id", sa.String(40), nullable=False),
        sa.Column("name", sa.JSON, nullable=False),
        sa.Column("scope", sa.String(20), nullable=False),
        sa.Column("prefix", sa.String(20), nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("created_at", _TIME, nullable=False),
        sa.Column("expires_at", _TIME),
        sa.Column("revoked_at", _TIME),
        sa.PrimaryKeyConstraint("id", name="pk_keys"),
    )


def _calibrations() -> None:
    op.create_table(
        "calibrations",
        sa.Column("id", sa.String(40), nullable=False),
        sa.Column("job_id", sa.String(40)),
        sa.Column("fingerprint_key", sa.String(32), nullable=False),
        sa.Column("body", sa.JSON, nullable=False),
        sa.Column("num_rows", sa.Integer, nullable=False),
        sa.Column("projection_ece", sa.Float),
        sa.Column("created_at", _TIME, nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_calibrations_job_id"),
        sa.PrimaryKeyConstraint("id", name="pk_calibrations"),
    )
    op.create_index("ix_calibrations_fingerprint_key", "calibrations", ["fingerprint_key"])
    op.create_index("ix_calibrations_job_id", "calibrations", ["job_id"])


def _dev_rows() -> None:
    op.create_table(
        "dev_rows",
        sa.Column("job_id", sa.String(40), nullable=False),
        sa.Column("line", sa.Integer, nullable=False),
        sa.Column("content", sa.JSON, nullable=False),
        sa.Column("draws", sa.JSON, nullable=False),
        sa.Column("supplied", sa.Boolean, nullable=False),
        sa.Column("complete", sa.Boolean, nullable=False),
        sa.Column("refused", sa.JSON(none_as_null=True)),
        sa.Column("verdict", sa.JSON(none_as_null=True)),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_dev_rows_job_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("job_id", "line", name="pk_dev_rows"),
    )


def _evaluations() -> None:
    op.create_table(
        "evaluations",
        sa.Column("job_id", sa.String(40), nullable=False),
        sa.Column("results", sa.JSON, nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_evaluations_job_id"),
        sa.PrimaryKeyConstraint("job_id", name="pk_evaluations"),
    )


def _activations() -> None:
    op.create_table(
        "activations",
        sa.Column("id", sa.Integer, autoincrement=True, nullable=False),
        sa.Column("calibration_id", sa.String(40), nullable=False),
        sa.Column("fingerprint_key", sa.String(32), nullable=False),
        sa.Column("current", sa.Boolean, nullable=False),
        sa.Column("activated_at", _TIME, nullable=False),
        sa.Column("by", sa.JSON, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("replaced", sa.String(40)),
        sa.ForeignKeyConstraint(
            ["calibration_id"], ["calibrations.id"], name="fk_activations_calibration_id"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_activations"),
        sqlite_autoincrement=True,
    )
    op.create_index(
        "uq_activations_current",
        "activations",
        ["fingerprint_key"],
        unique=True,
        sqlite_where=sa.text("current"),
        postgresql_where=sa.text("current"),
    )


def _conformal_references() -> None:
    op.create_table(
        "conformal_references",
        sa.Column("calibration_id", sa.String(40), nullable=False),
        sa.Column("content", sa.LargeBinary, nullable=False),
        sa.ForeignKeyConstraint(
            ["calibration_id"], ["calibrations.id"], name="fk_conformal_references_calibration_id"
        ),
        sa.PrimaryKeyConstraint("calibration_id", name="pk_conformal_references"),
    )


def _reports() -> None:
    op.create_table(
        "reports",
        sa.Column("calibration_id", sa.String(40), nullable=False),
        sa.Column("report", sa.JSON, nullable=False),
        sa.ForeignKeyConstraint(["calibration_id"], ["calibrations.id"], name="fk_reports_calibration_id"),
        sa.PrimaryKeyConstraint("calibration_id", name="pk_reports"),
    )

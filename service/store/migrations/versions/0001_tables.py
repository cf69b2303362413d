"""All tables. Keys and indexes are named by the convention of `service.store.database`."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_TIME = sa.DateTime(timezone=True)


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "jobs",
        sa.Column("id", sa.String(40), primary_key=True),
        sa.Column("kind", sa.String(20), nullable=False),
        sa.Column("state", sa.String(20), nullable=False, index=True),
        sa.Column("options", sa.JSON, nullable=False),
        sa.Column("setup", sa.JSON, nullable=False),
        sa.Column("setup_key", sa.String(32), nullable=False),
        sa.Column("fingerprint", sa.JSON(none_as_null=True)),
        sa.Column("num_rows", sa.Integer, nullable=False),
        sa.Column("content_hash", sa.String(64), nullable=False),
        sa.Column("idempotency_key", sa.String(255), unique=True),
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
    )
    op.create_table(
        "kept",
        sa.Column(
            "number", sa.BigInteger().with_variant(sa.Integer, "sqlite"), autoincrement=True, primary_key=True
        ),
        sa.Column("id", sa.String(255), nullable=False),
        sa.Column("owner", sa.String(64), nullable=False),
        sa.Column("expires", sa.Float, nullable=False, index=True),
        sa.Column("content", sa.Text, nullable=False),
    )
    op.create_index("ix_kept_names", "kept", ["owner", "id"])
    op.create_table(
        "keys",
        sa.Column("id", sa.String(40), primary_key=True),
        sa.Column("name", sa.JSON, nullable=False),
        sa.Column("scope", sa.String(20), nullable=False),
        sa.Column("prefix", sa.String(20), nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("created_at", _TIME, nullable=False),
        sa.Column("expires_at", _TIME),
        sa.Column("revoked_at", _TIME),
    )
    op.create_table(
        "calibrations",
        sa.Column("id", sa.String(40), primary_key=True),
        sa.Column("job_id", sa.String(40), sa.ForeignKey("jobs.id"), index=True),
        sa.Column("fingerprint_key", sa.String(32), nullable=False, index=True),
        sa.Column("body", sa.JSON, nullable=False),
        sa.Column("num_rows", sa.Integer, nullable=False),
        sa.Column("projection_ece", sa.Float),
        sa.Column("raw_projection_ece", sa.Float),
        sa.Column("created_at", _TIME, nullable=False),
    )
    op.create_table(
        "dev_rows",
        sa.Column("job_id", sa.String(40), sa.ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("line", sa.Integer, primary_key=True),
        sa.Column("content", sa.JSON, nullable=False),
        sa.Column("draws", sa.JSON, nullable=False),
        sa.Column("supplied", sa.Boolean, nullable=False),
        sa.Column("complete", sa.Boolean, nullable=False),
        sa.Column("refused", sa.JSON(none_as_null=True)),
        sa.Column("verdict", sa.JSON(none_as_null=True)),
        sa.Column("replies", sa.JSON(none_as_null=True)),
    )
    op.create_table(
        "activations",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column("calibration_id", sa.String(40), sa.ForeignKey("calibrations.id"), nullable=False),
        sa.Column("fingerprint_key", sa.String(32), nullable=False),
        sa.Column("current", sa.Boolean, nullable=False),
        sa.Column("activated_at", _TIME, nullable=False),
        sa.Column("by", sa.JSON, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("replaced", sa.String(40)),
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
    op.create_table(
        "conformal_references",
        sa.Column("calibration_id", sa.String(40), sa.ForeignKey("calibrations.id"), primary_key=True),
        sa.Column("content", sa.LargeBinary, nullable=False),
    )
    op.create_table(
        "reports",
        sa.Column("calibration_id", sa.String(40), sa.ForeignKey("calibrations.id"), primary_key=True),
        sa.Column("report", sa.JSON, nullable=False),
    )
    op.create_table(
        "replicas",
        sa.Column("id", sa.String(255), primary_key=True),
        sa.Column("seen_at", sa.Float, nullable=False),
    )
    op.create_table("write_checks", sa.Column("id", sa.Integer, primary_key=True, autoincrement=True))

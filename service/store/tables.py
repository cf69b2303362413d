"""The tables. Their history is in `migrations`; a test compares the two.

What people wrote (prompts, answers, names) is in JSON columns: Postgres text holds no NUL, its json does.
"""

from datetime import UTC, datetime

import sqlalchemy as sa

metadata = sa.MetaData(
    # Named alike on both databases, so that a migration can name what it alters.
    naming_convention={
        "pk": "pk_%(table_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "uq": "uq_%(table_name)s_%(column_0_name)s",
        "ix": "ix_%(table_name)s_%(column_0_name)s",
    }
)


class UtcDateTime(sa.types.TypeDecorator[datetime]):
    """Aware datetimes in UTC, on SQLite too, which keeps no zone."""

    impl = sa.DateTime(timezone=True)
    cache_ok = True

    def process_result_value(self, value: datetime | None, dialect: sa.Dialect) -> datetime | None:
        """Give naive values from SQLite their zone."""
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


# The defaults are those of a job that is queued.
jobs = sa.Table(
    "jobs",
    metadata,
    sa.Column("id", sa.String(40), primary_key=True),
    sa.Column("kind", sa.String(20), nullable=False),
    sa.Column("state", sa.String(20), nullable=False, index=True, default="queued"),
    sa.Column("options", sa.JSON, nullable=False),
    sa.Column("setup", sa.JSON, nullable=False, default={}),
    sa.Column("setup_key", sa.String(32), nullable=False, default=""),
    # SQL NULL for None: otherwise the column would hold the JSON word null, which is a value.
    sa.Column("fingerprint", sa.JSON(none_as_null=True)),
    sa.Column("num_rows", sa.Integer, nullable=False, default=0),
    sa.Column("content_hash", sa.String(64), nullable=False, default=""),
    sa.Column("idempotency_key", sa.String(255), unique=True),
    sa.Column("stage", sa.String(20)),
    sa.Column("done", sa.Integer, nullable=False, default=0),
    sa.Column("total", sa.Integer, nullable=False, default=0),
    # How far the stage was when it began here, and when it last got on: its pace.
    sa.Column("stage_began_at", UtcDateTime),
    sa.Column("stage_began_done", sa.Integer),
    sa.Column("progressed_at", UtcDateTime),
    sa.Column("note", sa.Text, nullable=False, default=""),
    sa.Column("error_code", sa.String(40)),
    sa.Column("error_detail", sa.Text),
    sa.Column("calibration_id", sa.String(40)),
    sa.Column("activated", sa.Boolean),
    sa.Column("decision", sa.Text),
    sa.Column("created_at", UtcDateTime, nullable=False, default=lambda: datetime.now(UTC)),
    sa.Column("started_at", UtcDateTime),
    sa.Column("finished_at", UtcDateTime),
    sa.Column("refused_rows", sa.Integer, nullable=False, default=0),
)

dev_rows = sa.Table(
    "dev_rows",
    metadata,
    sa.Column("job_id", sa.String(40), sa.ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("line", sa.Integer, primary_key=True),
    sa.Column("content", sa.JSON, nullable=False),
    sa.Column("draws", sa.JSON, nullable=False),
    sa.Column("supplied", sa.Boolean, nullable=False),  # the answers came with the row
    sa.Column("complete", sa.Boolean, nullable=False),
    # What the LLM server said that refused it for good, and the verdict on its answer, once it has one.
    sa.Column("refused", sa.JSON(none_as_null=True)),
    sa.Column("verdict", sa.JSON(none_as_null=True)),
)

calibrations = sa.Table(
    "calibrations",
    metadata,
    sa.Column("id", sa.String(40), primary_key=True),
    sa.Column("job_id", sa.String(40), sa.ForeignKey("jobs.id"), index=True),
    sa.Column("fingerprint_key", sa.String(32), nullable=False, index=True),
    sa.Column("body", sa.JSON, nullable=False),
    sa.Column("num_rows", sa.Integer, nullable=False),
    # Of its report, which Postgres cannot look into where a NUL is.
    sa.Column("projection_ece", sa.Float),
    sa.Column("created_at", UtcDateTime, nullable=False),
)

reports = sa.Table(
    "reports",
    metadata,
    sa.Column("calibration_id", sa.String(40), sa.ForeignKey("calibrations.id"), primary_key=True),
    sa.Column("report", sa.JSON, nullable=False),
)

# What the rows were like: up to megabytes, read for the calibrations that serve alone.
conformal_references = sa.Table(
    "conformal_references",
    metadata,
    sa.Column("calibration_id", sa.String(40), sa.ForeignKey("calibrations.id"), primary_key=True),
    sa.Column("content", sa.LargeBinary, nullable=False),
)

evaluations = sa.Table(
    "evaluations",
    metadata,
    sa.Column("job_id", sa.String(40), sa.ForeignKey("jobs.id"), primary_key=True),
    sa.Column("results", sa.JSON, nullable=False),
)

# Every activation is kept; its largest id is the version that replicas poll. Of a row `current` alone ever
# changes. `by`, of a key, holds a name that people wrote. The partial unique index makes a second current
# activation of a fingerprint impossible.
activations = sa.Table(
    "activations",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("calibration_id", sa.String(40), sa.ForeignKey("calibrations.id"), nullable=False),
    sa.Column("fingerprint_key", sa.String(32), nullable=False),
    sa.Column("current", sa.Boolean, nullable=False),
    sa.Column("activated_at", UtcDateTime, nullable=False),
    sa.Column("by", sa.JSON, nullable=False),
    sa.Column("reason", sa.Text, nullable=False),
    sa.Column("replaced", sa.String(40)),
    # Without it SQLite gives the largest id again once its row is gone.
    sqlite_autoincrement=True,
)

sa.Index(
    "uq_activations_current",
    activations.c.fingerprint_key,
    unique=True,
    sqlite_where=activations.c.current,
    postgresql_where=activations.c.current,
)

# SQLite counts up by itself for `Integer` alone, which has 64 bits there.
_COUNT = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
# Documents kept for a while, as the JSON text that they came in. `number` tells their age, and which is the
# later of two that were put under the same names at once.
kept = sa.Table(
    "kept",
    metadata,
    sa.Column("number", _COUNT, primary_key=True, autoincrement=True),
    sa.Column("id", sa.String(255), nullable=False),
    sa.Column("owner", sa.String(64), nullable=False),
    sa.Column("expires", sa.Float, nullable=False, index=True),  # seconds since 1970, by the database's clock
    sa.Column("content", sa.Text, nullable=False),
)

sa.Index("ix_kept_names", kept.c.owner, kept.c.id)

# Of a key its hash alone. `name` is what people wrote, `prefix` the part of the key that may be shown.
keys = sa.Table(
    "keys",
    metadata,
    sa.Column("id", sa.String(40), primary_key=True),
    sa.Column("name", sa.JSON, nullable=False),
    sa.Column("scope", sa.String(20), nullable=False),
    sa.Column("prefix", sa.String(20), nullable=False),
    sa.Column("digest", sa.String(64), nullable=False),
    sa.Column("created_at", UtcDateTime, nullable=False),
    sa.Column("expires_at", UtcDateTime, nullable=True),
    sa.Column("revoked_at", UtcDateTime, nullable=True),
)

"""Documents kept for a while."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

# SQLite counts up by itself for this type alone, which has 64 bits there.
NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "kept",
        sa.Column("number", NUMBER, autoincrement=True, nullable=False),
        sa.Column("kind", sa.String(20), nullable=False),
        sa.Column("id", sa.String(255), nullable=False),
        sa.Column("owner", sa.String(64), nullable=False),
        sa.Column("expires", sa.Float, nullable=False),
        sa.Column("content", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("number", name="pk_kept"),
    )
    op.create_index("ix_kept_expires", "kept", ["expires"])
    op.create_index("ix_kept_names", "kept", ["kind", "owner", "id"])
    op.create_index("ix_kept_age", "kept", ["kind", "number"])

"""The SQL store: jobs, dev rows, calibrations; SQLite by default, Postgres by URL."""

from service.adapters.store.active import ActiveCalibrations
from service.adapters.store.calibrations import SqlCalibrations
from service.adapters.store.database import Database
from service.adapters.store.jobs import SqlJobs
from service.adapters.store.replicas import Replicas

__all__ = ["ActiveCalibrations", "Database", "Replicas", "SqlCalibrations", "SqlJobs"]

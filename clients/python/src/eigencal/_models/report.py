"""Reports, whose fields grow with every release."""

from typing import Any

from eigencal._models.result import Result


class Report(Result):
    """A report as JSON: of a calibration or of an evaluation. The contract leaves its fields open.

    Read them by name (`report["risk"]`), or all of them (`report.fields`).
    """

    @property
    def fields(self) -> dict[str, Any]:
        """Every field by its name."""
        return dict(self.model_extra or {})

    def __getitem__(self, name: str) -> Any:
        return self.fields[name]

"""Runnable benchmarks. Each prints figures and ratios measured side by side in one run."""

import os

# Otherwise the service would ask its LLM the bundled questions during a measurement. Child processes inherit
# the variable.
os.environ.setdefault("EIGENCAL_GET_TO_KNOW", "false")

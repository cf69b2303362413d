"""Runnable benchmarks. Each prints figures and ratios measured side by side in one run."""

import os

# A benchmark's service must not ask its LLM questions meanwhile. Its processes inherit this.
os.environ.setdefault("EIGENCAL_GET_TO_KNOW", "false")

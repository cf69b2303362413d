"""The site, built once as `make docs` builds it."""

import os
import subprocess
import sys

import pytest

from tests.support.built_site import ROOT, Site


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    folder = tmp_path_factory.mktemp("site")
    # Not --quiet: it drops warnings before --strict counts them.
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    printed = done.stdout + done.stderr
    assert done.returncode == 0, printed
    return Site(folder, printed)

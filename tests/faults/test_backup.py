"""The documented backup of the SQLite databases, taken while a replica works, is complete and usable."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

from service.jobs.model import JobOptions
from tests.support.job_worker import dev_rows, hold
from tests.support.processes import final, idle_replica, kill, undisturbed, until_kept, worker

ROOT = Path(__file__).parents[2]
ROWS = 40


def documented() -> tuple[str, str]:
    """Return the Python code of the two documented commands: backup and restore."""
    lines = (ROOT / "docs" / "deploying.md").read_text().splitlines()
    commands = [shlex.split(line) for line in lines if "sqlite3.connect" in line]
    take, restore = ([*command][command.index("-c") + 1] for command in commands)
    return take, restore


def carry_out(code: str, folder: Path) -> None:
    """Run a documented command on a folder instead of the container's."""
    subprocess.run([sys.executable, "-c", code.replace("/data/", f"{folder}/")], check=True, timeout=300)


def databases(folder: Path, name: str) -> set[str]:
    """Return the suffixes of the databases of a name, without logs and locks."""
    paths = [path for path in folder.glob(f"{name}*") if path.suffix not in (".lock", ".owner")]
    results = {re.sub("-(wal|shm)$", "", path.name) for path in paths}
    return {file.removeprefix(name) for file in results}


async def test_backup_during_a_job_is_complete_and_resumes_the_job(tmp_path: Path) -> None:
    take, restore = documented()
    url, log = f"sqlite:///{tmp_path / 'eigencal.db'}", tmp_path / "log"
    hold(log, after=ROWS // 2)  # the job does not end before the copy is taken
    async with worker(url, log, slow_s=0.2) as process, idle_replica(url) as watching:
        job, _ = await watching.jobs.submit(dev_rows(ROWS), JobOptions())
        await until_kept(watching, job, 3)
        carry_out(take, tmp_path)
        await kill(process)
    assert databases(tmp_path, "backup.db") == databases(tmp_path, "eigencal.db") == {"", ".jobs"}

    fresh = tmp_path / "fresh"
    fresh.mkdir()
    for ending in ("", ".jobs"):
        (tmp_path / f"backup.db{ending}").rename(fresh / f"backup.db{ending}")
    carry_out(restore, fresh)
    carry_out(restore, fresh)  # also over an existing file
    restored = f"sqlite:///{fresh / 'eigencal.db'}"
    async with worker(restored, tmp_path / "second"), idle_replica(restored) as watching:
        ended = await final(watching, job)
    assert ended.parameters == (await undisturbed(tmp_path, ROWS)).parameters

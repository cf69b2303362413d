"""Carry out a Dockerfile's own steps without a Docker engine: each stage a folder, each step in a chroot.

Needs Linux, root, `unshare`, `setpriv` and, for the base, `debootstrap`. The base is Debian 12 with its own
Python 3.11 as `python`: the nearest thing to the image that the Dockerfile names. pip's configuration, the
certificates and the name service are this machine's.
"""

import json
import os
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

SYSTEM = ("/etc/resolv.conf", "/etc/hosts", "/etc/ssl/certs", "/etc/pip.conf")
PATH = "/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# As docker-compose.yml: the image's user, no capabilities, none to be won by a set-uid program.
CONFINE = "setpriv --reuid {} --regid {} --clear-groups --no-new-privs --inh-caps=-all --bounding-set=-all"


@dataclass
class Stage:
    """One FROM: its name, its instructions, and what ARG and ENV have said so far."""

    name: str
    steps: list[tuple[str, str]] = field(default_factory=list)
    variables: dict[str, str] = field(default_factory=dict)
    workdir: str = "/"
    user: str = "0:0"
    healthcheck: list[str] = field(default_factory=list)
    entrypoint: list[str] = field(default_factory=list)


def instructions(text: str) -> Iterator[tuple[str, str]]:
    """Yield (keyword, rest) of a Dockerfile, comments left out and continued lines joined."""
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    for line in "\n".join(lines).replace("\\\n", " ").splitlines():
        keyword, _, rest = line.strip().partition(" ")
        yield keyword.upper(), rest.strip()


def stages(text: str) -> list[Stage]:
    """Return the stages of a Dockerfile."""
    found: list[Stage] = []
    for keyword, rest in instructions(text):
        if keyword == "FROM":
            words = rest.split()
            found.append(Stage(words[2] if len(words) == 3 else str(len(found))))
        elif found:
            found[-1].steps.append((keyword, rest))
    return found


class Builder:
    """Runs stages in folders below `work`; `binds` are folders of this machine to show inside."""

    def __init__(self, context: Path, work: Path, binds: list[str]) -> None:
        self.context = context
        self.work = work
        self.binds = [*SYSTEM, *binds]
        self.base = work / "base"

    def make_base(self) -> None:
        """Make the clean root that stands for the base image, once."""
        if self.base.exists():
            return
        packages = "ca-certificates,python3,python3-venv"
        command = ["debootstrap", "--variant=minbase", f"--include={packages}", "bookworm"]
        partial = self.work / "base.partial"
        subprocess.run([*command, str(partial)], check=True, stdout=subprocess.DEVNULL)  # noqa: S603
        partial.rename(self.base)

    def root_of(self, stage: Stage) -> Path:
        """Return the folder of a stage."""
        return self.work / f"stage-{stage.name}"

    def build(self, stage: Stage) -> None:
        """Run the steps of a stage in a fresh copy of the base."""
        root = self.root_of(stage)
        shutil.rmtree(root, ignore_errors=True)
        subprocess.run(["/bin/cp", "-a", str(self.base), str(root)], check=True)  # noqa: S603
        (root / "usr/local/bin/python").symlink_to("/usr/bin/python3")
        for keyword, rest in stage.steps:
            print(f"[{stage.name}] {keyword} {rest[:110]}", flush=True)
            getattr(self, f"_{keyword.lower()}", self._nothing)(stage, rest)

    def _nothing(self, stage: Stage, rest: str) -> None:
        pass

    def _arg(self, stage: Stage, rest: str) -> None:
        name, _, value = rest.partition("=")
        stage.variables[name] = os.environ.get(name, value.strip('"'))

    def _env(self, stage: Stage, rest: str) -> None:
        for word in shlex.split(rest):
            name, _, value = word.partition("=")
            stage.variables[name] = value.replace("$PATH", stage.variables.get("PATH", PATH))

    def _workdir(self, stage: Stage, rest: str) -> None:
        stage.workdir = rest
        (self.root_of(stage) / rest.lstrip("/")).mkdir(parents=True, exist_ok=True)

    def _user(self, stage: Stage, rest: str) -> None:
        stage.user = rest

    def _healthcheck(self, stage: Stage, rest: str) -> None:
        stage.healthcheck = json.loads(rest.split(" CMD ", 1)[1])

    def _entrypoint(self, stage: Stage, rest: str) -> None:
        stage.entrypoint = json.loads(rest)

    def _copy(self, stage: Stage, rest: str) -> None:
        words, source = rest.split(), self.context
        if words[0].startswith("--from="):
            source = self.work / f"stage-{words.pop(0).removeprefix('--from=')}"
        *names, target = words
        folder = self.root_of(stage) / os.path.join(stage.workdir, target).lstrip("/")  # noqa: PTH118
        for name in names:
            path = source / name.lstrip("/")
            _copy_one(path, folder if path.is_dir() or not target.endswith("/") else folder / path.name)

    def _run(self, stage: Stage, rest: str) -> None:
        if stage.user != "0:0":
            raise ValueError("RUN after USER is not carried out here")
        kept = {name: value for name, value in os.environ.items() if name.startswith("PIP_") and value}
        command = self.inside(stage, ["/bin/sh", "-c", rest])
        subprocess.run(command, check=True, env={"PATH": PATH, **kept, **stage.variables})  # noqa: S603

    def inside(self, stage: Stage, argv: list[str], volume: Path | None = None) -> list[str]:
        """Return the command that runs `argv` in the root of a stage: as root, or with a volume confined.

        Confined: the root is read-only, /tmp is empty, the volume is at /data, the user is the stage's.
        """
        root = shlex.quote(str(self.root_of(stage)))
        enter = f"chroot {root} /usr/bin/env -C {stage.workdir}"
        script = [f"mount --rbind {root} {root}"]
        for path in filter(os.path.exists, self.binds):
            make = "mkdir -p" if Path(path).is_dir() else "touch"
            script += [f"{make} {root}{path}", f"mount --bind {path} {root}{path}"]
        if volume is not None:
            script.append(f"mount -t tmpfs -o mode=1777,size=1g,noexec,nosuid,nodev tmp {root}/tmp")  # noqa: S108
            script += [f"mount --bind {volume} {root}/data", f"mount -o remount,bind,ro {root} {root}"]
            enter += " " + CONFINE.format(*stage.user.split(":"))
        script += [f"mount -t proc proc {root}/proc", f"mount --rbind /dev {root}/dev"]
        script.append(f"exec {enter} {shlex.join(argv)}")
        return ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-ec", "\n".join(script)]


def _copy_one(path: Path, into: Path) -> None:
    into.parent.mkdir(parents=True, exist_ok=True)
    if path.is_dir():
        shutil.copytree(path, into, symlinks=True, dirs_exist_ok=True)
    else:
        shutil.copy(path, into)


def make_context(project: Path, folder: Path) -> Path:
    """Copy into `folder` what .dockerignore lets through (`*`, then `!name` lines) and return it."""
    shutil.rmtree(folder, ignore_errors=True)
    lines = (project / ".dockerignore").read_text().split()
    for name in (line[1:] for line in lines if line.startswith("!")):
        path = project / name
        if path.is_dir():
            shutil.copytree(path, folder / name, ignore=shutil.ignore_patterns("__pycache__", "*.pyc"))
        elif path.exists():
            _copy_one(path, folder / name)
    return folder

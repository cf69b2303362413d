"""A local model hub with repositories from folders, each with one commit."""

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread


@dataclass
class ModelHub:
    """The published repositories: folder and commit by name."""

    url: str = ""
    models: dict[str, tuple[Path, str]] = field(default_factory=dict)

    @contextmanager
    def running(self) -> Iterator["ModelHub"]:
        hub = self

        class Handler(_Handler):
            models = hub.models

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.daemon_threads = True
        self.url = f"http://127.0.0.1:{server.server_port}"
        thread = Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield self
        finally:
            server.shutdown()
            server.server_close()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    models: dict[str, tuple[Path, str]]

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        for name, (folder, commit) in self.models.items():
            if path.startswith(f"/api/models/{name}/tree/"):
                return self._send(200, json.dumps([_listed(folder, f) for f in _files(folder)]).encode())
            if path.startswith(f"/api/models/{name}"):
                siblings = [{"rfilename": f.relative_to(folder).as_posix()} for f in _files(folder)]
                return self._send(200, json.dumps({"id": name, "sha": commit, "siblings": siblings}).encode())
            if path.startswith(f"/{name}/resolve/{commit}/"):
                return self._file(folder / path.removeprefix(f"/{name}/resolve/{commit}/"), commit)
        return self._send(401, b"{}", {"X-Error-Code": "RepoNotFound"})

    def do_HEAD(self) -> None:
        self.do_GET()

    def _file(self, file: Path, commit: str) -> None:
        if not file.is_file():
            self._send(404, b"", {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": commit})
            return
        self._send(200, file.read_bytes(), {"ETag": f'"{_hash(file)}"', "X-Repo-Commit": commit})

    def _send(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


def _files(folder: Path) -> list[Path]:
    return [f for f in folder.rglob("*") if f.is_file()]


def _listed(folder: Path, file: Path) -> dict[str, object]:
    path = file.relative_to(folder).as_posix()
    return {"type": "file", "path": path, "size": file.stat().st_size, "oid": _hash(file)}


def _hash(file: Path) -> str:
    return hashlib.sha1(file.read_bytes()).hexdigest()

"""The npm package: its files, and the examples of its README in an empty project."""

import json
import tarfile
from pathlib import Path

import pytest

from tests.clients.conftest import labelled
from tests.clients.environments import SCORE_KEY
from tests.clients.typescript import FOLDER, PACKAGES, ROOT, TSC, installed, packed, readme_blocks, run
from tests.support.services import Service

pytestmark = pytest.mark.clients
# The output of each example, in order. `page.js` runs in a browser: test_typescript_browser.py.
PRINTS = {
    "score.ts": ["Berlin 0."],
    "batch.ts": ["0 0.", "1 0."],
    "calibrate.ts": ["reporting", "November is "],
    "chat.ts": ["Berlin {\n  probability: 0.", "\n {\n  probability: 0."],
    "errors.ts": ["model_not_found 404"],
}
STRICT = ("--strict", "--target", "es2022", "--skipLibCheck", "false")
IN_NODE = ("--module", "nodenext", "--lib", "es2022", "--typeRoots", PACKAGES / "@types", "--types", "node")
IN_BROWSERS = ("--module", "esnext", "--moduleResolution", "bundler", "--lib", "es2022,dom")


@pytest.fixture(scope="module")
def tarball(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return packed(tmp_path_factory.mktemp("packed"))


@pytest.fixture(scope="module")
def elsewhere(tarball: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the package, the README's examples, and their compiled TypeScript."""
    folder = installed(tarball, tmp_path_factory.mktemp("elsewhere") / "app")
    for name, code in readme_blocks().items():
        (folder / name).write_text(code, encoding="utf-8")
    run("node", TSC, *STRICT, *IN_NODE, "--outDir", "made", *PRINTS, cwd=folder)
    return folder


def test_the_tarball_holds_what_it_should_and_nothing_else(tarball: Path) -> None:
    with tarfile.open(tarball) as packed_files:
        names = {name.removeprefix("package/") for name in packed_files.getnames()}
        license_file = packed_files.extractfile("package/LICENSE")
        assert license_file is not None
        assert license_file.read() == (ROOT / "LICENSE").read_bytes()
    sources = {path.stem for path in (FOLDER / "src").glob("*.ts")}
    built = {f"dist/{stem}{suffix}" for stem in sources for suffix in (".js", ".d.ts")}
    assert names == built | {"README.md", "LICENSE", "CHANGELOG.md", "package.json"}


def test_it_brings_nothing_with_it(elsewhere: Path) -> None:
    folders = {path.name for path in (elsewhere / "node_modules").iterdir()}
    assert folders - {".package-lock.json"} == {"eigencal"}


@pytest.mark.parametrize("name", PRINTS)
def test_an_example_of_the_readme(name: str, elsewhere: Path, ours: str, deciding: Service) -> None:
    (elsewhere / "dev.jsonl").write_text("\n".join(json.dumps(row) for row in labelled()))
    script = elsewhere / "made" / name.replace(".ts", ".js")
    address = str(deciding.http.base_url).rstrip("/") if name == "calibrate.ts" else ours
    code = script.read_text().replace("http://127.0.0.1:8000", address).replace("the-score-key", SCORE_KEY)
    script.write_text(code)
    told = run("node", script, cwd=elsewhere)
    for said in PRINTS[name]:
        assert said in told
        told = told[told.index(said) + len(said) :]


def test_its_types_hold_in_a_browsers_project_too(elsewhere: Path) -> None:
    run("node", TSC, *STRICT, *IN_BROWSERS, "--noEmit", "score.ts", "batch.ts", "errors.ts", cwd=elsewhere)


WRONG = {
    "await client.score({ promt: 'x' });": "promt",
    "await client.score({ prompt: 'x', effort: 'huge' });": "huge",
    "(await client.score('x')).lambdaMax;": "lambdaMax",
    "for await (const { result } of client.scoreBatch(['x'])) result.answer;": "undefined",
}


@pytest.mark.parametrize(("line", "said"), WRONG.items())
def test_the_types_find_what_is_wrong(line: str, said: str, elsewhere: Path) -> None:
    code = f"import {{ Eigencal }} from 'eigencal';\nconst client = new Eigencal();\n{line}\n"
    (elsewhere / "wrong.ts").write_text(code)
    with pytest.raises(AssertionError, match=rf"wrong\.ts\(3,.*{said}"):
        run("node", TSC, *STRICT, *IN_NODE, "--noEmit", "wrong.ts", cwd=elsewhere)

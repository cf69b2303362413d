"""Every code block of the documentation is run, or checked, or says why not."""

import io
import subprocess
from pathlib import Path

import pytest

from service.calibration.files import UploadLimits, read_file
from tests.docs import shown
from tests.docs.blocks import SHELL, Block, blocks, blocks_in, pages, verdict
from tests.docs.playing import Played, play, prepared

BLOCKS = {page: blocks(page) for page in pages()}
EVERY = [block for found in BLOCKS.values() for block in found]
DATA = [block for block in EVERY if verdict(block) == "checked"]
EXCUSED = [block for block in EVERY if verdict(block) == "excused"]


def test_every_block_is_run_checked_or_excused() -> None:
    wanting = [told for told in map(verdict, EVERY) if told not in ("run", "checked", "excused")]
    assert not wanting, "\n".join(wanting)


@pytest.mark.parametrize("block", [b for b in DATA if b.language == "json"], ids=lambda block: block.where)
def test_json_has_fields_of_the_contract(block: Block) -> None:
    names = shown.keys_below(shown.parsed(block.code))
    assert names
    assert names <= shown.contract_names(), names - shown.contract_names()


@pytest.mark.parametrize(
    "block", [b for b in DATA if b.language in ("jsonl", "csv")], ids=lambda block: block.where
)
def test_rows_are_taken(block: Block) -> None:
    rows = list(read_file(io.BytesIO(block.code.encode()), UploadLimits(min_rows=1)).rows())
    assert len(rows) == len(block.code.splitlines()) - (block.language == "csv")


@pytest.mark.parametrize("block", [b for b in EXCUSED if b.language in SHELL], ids=lambda block: block.where)
def test_what_is_not_run_is_shell_all_the_same(block: Block) -> None:
    done = subprocess.run(["bash", "-n"], input=block.code, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


SAMPLE = """
Text.

```bash
echo 1
```

```json
{"a": 1}
```

Text.

```json
{"a": 1}
```

    indented

<!-- not run: why -->

```text
a
```

<!-- not run: it does not reach over text -->

Text.

```text
b
```

=== "Tab"

    ```python
    print(1)
    ```
"""


def test_blocks_are_found_with_what_is_said_of_them() -> None:
    found = list(blocks_in("page.md", SAMPLE))
    assert [(b.language, b.line, b.follows) for b in found] == [
        ("bash", 5, False),
        ("json", 9, True),
        ("json", 15, False),
        ("", 18, True),
        ("text", 23, True),
        ("text", 31, False),
        ("python", 37, False),
    ]
    told = [verdict(b) for b in found]
    assert told[:3] + told[4:5] + told[6:] == ["run", "checked", "checked", "excused", "run"]
    assert "names no language" in told[3]
    assert "neither run nor checked" in told[5]


PLAYED = """
<!-- before: WHO=reader -->

```bash
echo "Hello $WHO, http://127.0.0.1:8000"
```

```python
number = 6
print(number)
```

<!-- goes on -->

```python
print(number * 7)
```

```bash
{last}
```

```bash
echo never
```
"""


def played(last: str, folder: Path) -> Played:
    url = "http://127.0.0.1:9"  # nobody listens on the discard port, and nobody is asked
    return play(list(blocks_in("page.md", PLAYED.replace("{last}", last))), url, prepared(folder, url))


@pytest.mark.parametrize(
    "last", ["false", "curl -s http://127.0.0.1:9/", "false | cat", "python -c 'raise OSError'"]
)
def test_a_page_ends_at_the_block_that_fails(last: str, tmp_path: Path) -> None:
    done = played(last, tmp_path)
    assert done.returncode != 0
    assert done.last == 3

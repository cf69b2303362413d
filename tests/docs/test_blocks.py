"""Every code block of the documentation is run, checked, or marked with a reason."""

import io
import subprocess

import pytest

from service.calibration.files import UploadLimits, read_file
from tests.docs import shown
from tests.docs.blocks import SHELL, Block, blocks, pages, verdict

BLOCKS = {page: blocks(page) for page in pages()}
EVERY = [block for block_ in BLOCKS.values() for block in block_]
DATA = [block for block in EVERY if verdict(block) == "checked"]
EXCUSED = [block for block in EVERY if verdict(block) == "excused"]


def test_every_block_is_run_checked_or_exempt() -> None:
    wanting = [outcome for outcome in map(verdict, EVERY) if outcome not in ("run", "checked", "excused")]
    assert not wanting, "\n".join(wanting)


@pytest.mark.parametrize("block", [b for b in DATA if b.language == "json"], ids=lambda block: block.where)
def test_json_blocks_have_fields_of_the_contract(block: Block) -> None:
    names = shown.keys_below(shown.parsed(block.code))
    assert names
    assert names <= shown.contract_names(), names - shown.contract_names()


@pytest.mark.parametrize(
    "block", [b for b in DATA if b.language in ("jsonl", "csv")], ids=lambda block: block.where
)
def test_row_blocks_are_valid(block: Block) -> None:
    rows = list(read_file(io.BytesIO(block.code.encode()), UploadLimits(min_rows=1)).rows())
    assert len(rows) == len(block.code.splitlines()) - (block.language == "csv")


@pytest.mark.parametrize("block", [b for b in EXCUSED if b.language in SHELL], ids=lambda block: block.where)
def test_blocks_that_are_not_run_are_valid_shell(block: Block) -> None:
    done = subprocess.run(["bash", "-n"], input=block.code, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr

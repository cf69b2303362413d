"""How many blocks of each page are run, checked, excused: python -m tests.docs.count writes counts.json."""

import json
from collections import Counter
from pathlib import Path

from tests.docs.blocks import blocks, pages, verdict

COUNTS = Path(__file__).parent / "counts.json"
KINDS = ("run", "checked", "excused")


def counted() -> dict[str, dict[str, int]]:
    """Return the counts by page, of pages that have blocks."""
    found = {page: Counter(verdict(block) for block in blocks(page)) for page in pages()}
    return {page: {kind: number[kind] for kind in KINDS} for page, number in found.items() if number}


def total(counts: dict[str, dict[str, int]]) -> dict[str, int]:
    """Return the counts of all pages together."""
    return {kind: sum(one[kind] for one in counts.values()) for kind in KINDS}


if __name__ == "__main__":
    lines = [f" {json.dumps(page)}: {json.dumps(number)}" for page, number in counted().items()]
    COUNTS.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    print(total(counted()))

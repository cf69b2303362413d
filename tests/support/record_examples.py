"""Record the examples of the OpenAPI document from a running service: `make examples` after `make run`.

Usage: python -m tests.support.record_examples http://127.0.0.1:8000
"""

import json
import sys
from pathlib import Path

import httpx2 as httpx

TARGET = Path(__file__).parents[2] / "service" / "http" / "examples.json"
REQUESTS = {
    "prompt": {"prompt": "What is the capital of France?", "num_samples": 10},
    "unsure": {"prompt": "What is the name of my dog?", "num_samples": 3},
    "candidate": {
        "prompt": "What is the capital of France?",
        "num_samples": 3,
        "candidate": "It is Lyon.",
        "target_error": 0.2,
    },
    "samples": {
        "samples": ["Winston Churchill", "Winston Churchill", "Churchill", "Clement Attlee"],
        "source_label": "my-chatbot",
        "return": ["modes"],
    },
}


def main() -> None:
    recorded = {}
    with httpx.Client(base_url=sys.argv[1], timeout=300) as http:
        for name, body in REQUESTS.items():
            response = http.post("/score", json=body)
            response.raise_for_status()
            recorded[name] = {"request": body, "response": response.json()}
    TARGET.write_text(json.dumps(recorded, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()

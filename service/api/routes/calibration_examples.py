"""Examples of the contract, and the body of POST /calibrate, which its route reads itself."""

from typing import Any

JOB: dict[str, Any] = {
    "id": "job_01KAJ3Z7M2T5W8Y4QXN0C6R9DE",
    "kind": "calibrate",
    "state": "running",
    "name": "TriviaQA, November",
    "stage": "sampling",
    "done": 120,
    "total": 300,
    "eta_s": 412.0,
    "note": "",
    "error": None,
    "calibration_id": None,
    "created_at": "2026-11-21T07:00:00Z",
    "started_at": "2026-11-21T07:00:01Z",
    "finished_at": None,
    "links": {
        "self": "/jobs/job_01KAJ3Z7M2T5W8Y4QXN0C6R9DE",
        "events": "/jobs/job_01KAJ3Z7M2T5W8Y4QXN0C6R9DE/events",
    },
}
CALIBRATION: dict[str, Any] = {
    "id": "cal_01KAJ4B8V3S6X9Z5RYP1D7T0EF",
    "name": "TriviaQA, November",
    "method": "depolarized",
    "temperature": 0.92,
    "depolarization": 0.56,
    "num_samples": 20,
    "parameters": [
        {"num_samples": 2, "temperature": 0.55, "depolarization": 0.7},
        {"num_samples": 20, "temperature": 0.92, "depolarization": 0.56},
    ],
    "eps": 1e-10,
    "fingerprint": {
        "source": "service",
        "embedder": "all-mpnet-base-v2",
        "embedder_revision": "78c0197b6159d926",
        "embedder_precision": "float32",
        "embedder_dimension": 768,
        "source_label": "",
        "model": "SmolLM2-135M-Instruct",
        "api": "completions",
        "prompt_shape": "5f0a3c1d9be24786",
        "answer_regex": "",
        "sampling.temperature": 0.5,
        "sampling.top_p": 1.0,
        "sampling.top_k": 0,
        "sampling.max_tokens": 64,
        "sampling.stop": ["\n"],
    },
    "fingerprint_key": "0b9f3f6f4a3f1c2e8d7a6b5c4d3e2f10",
    "created_at": "2026-11-21T07:08:00Z",
    "active": True,
    "activated_at": "2026-11-21T07:08:00Z",
    "job_id": JOB["id"],
    "num_rows": 300,
    "data_kept": True,
    "links": {
        "self": "/calibrations/cal_01KAJ4B8V3S6X9Z5RYP1D7T0EF",
        "report": "/calibrations/cal_01KAJ4B8V3S6X9Z5RYP1D7T0EF/report",
        "activate": "/calibrations/cal_01KAJ4B8V3S6X9Z5RYP1D7T0EF/activate",
        "data": "/calibrations/cal_01KAJ4B8V3S6X9Z5RYP1D7T0EF/data",
    },
}
ROW = '{"id": "0", "prompt": "Who wrote Emma?", "reference": "Jane Austen", "samples": ["Austen", "Eliot"]}\n'
LOCATION: dict[str, Any] = {
    "headers": {"Location": {"description": "Path of the job.", "schema": {"type": "string"}}}
}
UPLOAD: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "multipart/form-data": {"schema": {"$ref": "#/components/schemas/CalibrateForm"}},
            "application/json": {"schema": {"$ref": "#/components/schemas/CalibrateRequest"}},
        },
    }
}

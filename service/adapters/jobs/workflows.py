"""The workflows of jobs in DBOS: listed, enqueued, handed over, cancelled. All of it blocks.

The id of a workflow is that of its job and a number: a job may have had several, one of which is unfinished.
"""

import logging
from collections import defaultdict
from collections.abc import Collection, Mapping
from typing import Any

logger = logging.getLogger(__name__)

# Raised when workflows of the old shape could not go on with the new code: `settle` begins them anew.
WORKFLOW_VERSION = "2"
NAME = "job"
_WAITS, _RUNS = "ENQUEUED", "PENDING"  # as DBOS calls them


def queue_of(lane: str) -> str:
    """Return the name of the queue of a lane."""
    return f"eigencal-jobs-{lane}"


def _listed(**which: Any) -> list[Any]:
    from dbos import DBOS

    return DBOS.list_workflows(load_input=False, load_output=False, **which)


def _unfinished(**which: Any) -> list[Any]:
    """Return workflows that wait or run. Those of another version no one here can run."""
    return _listed(status=[_WAITS, _RUNS], app_version=WORKFLOW_VERSION, name=NAME, **which)


def settle(jobs: Mapping[str, str], living: Collection[str], function: Any) -> None:
    """See that each job, by id, has a workflow that waits in its lane or is run by a living executor.

    function: the workflow's, for a job that has none.
    """
    of_job = defaultdict(list)
    for workflow in _unfinished():
        of_job[workflow.workflow_id.partition("-")[0]].append(workflow)  # ids of jobs hold no dash
    for job_id, lane in jobs.items():
        if job_id not in of_job:
            _enqueue(job_id, queue_of(lane), function)
        for workflow in of_job[job_id]:
            _keep_going(workflow, job_id, queue_of(lane), living)


def _keep_going(workflow: Any, job_id: str, queue: str, living: Collection[str]) -> None:
    from dbos import DBOS

    runs = workflow.status == _RUNS
    if workflow.executor_id in living if runs else workflow.queue_name == queue:
        return
    if runs:
        logger.warning("job %s: nobody seems to run it, it is taken over", job_id)
    DBOS.resume_workflow(workflow.workflow_id, queue_name=queue)


def _enqueue(job_id: str, queue: str, function: Any) -> None:
    """Begin the job's next workflow. Peers that do so at once give it the same id: it begins once."""
    from dbos import DBOS, SetWorkflowID

    earlier = _listed(workflow_id_prefix=job_id)
    if not any(one.status in (_WAITS, _RUNS) and one.app_version == WORKFLOW_VERSION for one in earlier):
        with SetWorkflowID(f"{job_id}-{len(earlier)}"):
            DBOS.enqueue_workflow(queue, function, job_id)


def cancel(job_id: str) -> None:
    """Cancel the workflows of a job: DBOS breaks off their steps, wherever they run."""
    from dbos import DBOS

    DBOS.cancel_workflows([one.workflow_id for one in _unfinished(workflow_id_prefix=job_id)])

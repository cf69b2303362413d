import { ConnectionError, EigencalError, JobFailedError } from "./errors.js";
import { eventsOf, recordOf } from "./lines.js";
import { atLeast, pause } from "./patience.js";
import type { Transport } from "./transport.js";
import type { CallOptions, JobState } from "./types.js";

// The service sends a sign of life every 15 s.
const SILENCE_MS = 60_000;
const PATIENCE_MS = 120_000;
const BETWEEN_MS = 1_000;

/** How a job is waited for. */
export interface WaitOptions {
  /** Called with the job now and whenever it has changed. */
  onProgress?: ((job: JobState) => void) | undefined;
  /** Ends the waiting, not the job. */
  signal?: AbortSignal | undefined;
  /** For how long the service may be away, as while it restarts: two minutes. */
  patienceMs?: number | undefined;
}

/** A job as it was told last. */
export type Job = JobState & {
  /** Wait until it ends and return its end. Raises JobFailedError where it failed or was cancelled. */
  wait(options?: WaitOptions): Promise<JobState>;
};

/** Return a job that can be waited for. */
export function jobFrom(transport: Transport, state: JobState): Job {
  const wait = (options?: WaitOptions): Promise<JobState> => ended(transport, state.id, options);
  // Not among its fields: printed or compared, it is what the service told.
  return Object.defineProperty(state, "wait", { value: wait }) as Job;
}

/** Yield a job now and whenever it has changed; the last has its final state. Raises ConnectionError where that does not come. */
export async function* jobEvents(
  transport: Transport,
  id: string,
  options: CallOptions = {},
): AsyncGenerator<JobState> {
  const call = { timeoutMs: SILENCE_MS, ...options, ids: [id] };
  const pieces = transport.pieces("GET /jobs/{job_id}/events", call);
  let last: JobState | undefined;
  for await (const data of eventsOf(pieces)) yield (last = recordOf(data) as JobState);
  // A proxy's page, or a proxy that ends what takes long, ends as cleanly as a job does.
  if (!last?.finished_at) throw new ConnectionError(`the events of job ${id} ended before the job did`);
}

async function ended(transport: Transport, id: string, options: WaitOptions = {}): Promise<JobState> {
  const patienceMs = atLeast(0, "patienceMs", options.patienceMs ?? PATIENCE_MS);
  let heard = Date.now();
  for (;;) {
    try {
      for await (const job of jobEvents(transport, id, { signal: options.signal, maxRetries: 0 })) {
        heard = Date.now();
        options.onProgress?.(job);
        if (job.finished_at) return succeeded(job);
      }
    } catch (error) {
      const passes = error instanceof EigencalError && error.retryable;
      if (!passes || Date.now() - heard >= patienceMs) throw error;
    }
    await pause(BETWEEN_MS, options.signal);
  }
}

function succeeded(job: JobState): JobState {
  if (job.state !== "succeeded") throw new JobFailedError(job);
  return job;
}

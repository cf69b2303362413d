// Calls of the service's API, on the host and under the path prefix that served this page.
import type { components } from "../../../../clients/typescript/src/openapi";

type Schemas = components["schemas"];
export type Score = Schemas["Score"];
export type ScoreRequest = Schemas["ScoreRequest"];
export type Job = Schemas["Job"];
export type Calibration = Schemas["CalibrationOut"];
export type Activation = Schemas["Activation"];
type Problem = Schemas["Problem"];
export type Session = { score: boolean; admin: boolean; signed_in: boolean; version: string };

/** The root of the API: the page is one folder below it. */
const ROOT = new URL("..", document.baseURI);

/** Return the address of a path of the API ("/score"). It is always below ROOT, whatever the path holds. */
export const address = (path: string): string => new URL(`./${path.replace(/^\/+/, "")}`, ROOT).href;

/** A line of an uploaded file and what is wrong with it. `line` is null if the whole file is meant. */
export type RowFault = { line: number | null; field: string | null; reason: string };

/** A refused or failed call. `status` is 0 if there was no response. */
export class Failure extends Error {
  constructor(
    message: string,
    readonly status = 0,
    readonly code = "",
    readonly requestId = "",
    readonly faults: RowFault[] = [],
  ) {
    super(message);
  }
}

/** Return the failure that a response reports. */
async function failureOf(response: Response): Promise<Failure> {
  const { status } = response;
  const requestId = response.headers.get("x-request-id") ?? "";
  const problem: Partial<Problem> = await response.json().catch(() => ({}));
  const listed = (problem as { errors?: { line?: number; field?: string; reason?: string }[] }).errors ?? [];
  const faults = listed
    .filter((error) => typeof error.reason === "string")
    .map((error) => ({ line: error.line ?? null, field: error.field ?? null, reason: error.reason ?? "" }));
  const said = (problem as { llm_message?: string }).llm_message;
  const text = [problem.detail ?? problem.title ?? `HTTP ${status}`, said].filter(Boolean).join(" ");
  return new Failure(text, status, problem.code ?? "", problem.request_id ?? requestId, faults);
}

/** Call the API and return the response. Throws Failure. */
export async function request(path: string, init: RequestInit = {}): Promise<Response> {
  let response: Response;
  try {
    response = await fetch(address(path), { credentials: "same-origin", ...init });
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    throw new Failure("");
  }
  if (!response.ok) throw await failureOf(response);
  return response;
}

/** Call the API with an optional JSON body and return the JSON of the response. Throws Failure. */
export async function call<T>(path: string, method = "GET", body?: unknown, signal: AbortSignal | null = null): Promise<T> {
  const headers: Record<string, string> = { Accept: "application/json" };
  if (body !== undefined) headers["Content-Type"] = "application/json";
  const sent = body === undefined ? {} : { body: JSON.stringify(body) };
  const response = await request(path, { method, headers, signal, ...sent });
  return (response.status === 204 ? undefined : await response.json()) as T;
}

/**
 * Poll a job until it ends. Return a function that stops the polling.
 * onLost: called after a failed poll, with the failure if the job cannot be followed any more.
 */
export function follow(id: string, onJob: (job: Job) => void, onLost: (failure?: Failure) => void): () => void {
  let timer: ReturnType<typeof setTimeout>;
  let isStopped = false;
  const poll = async () => {
    try {
      const job = await call<Job>(`/jobs/${id}`);
      if (isStopped) return;
      onJob(job);
      if (isOver(job)) return;
    } catch (error) {
      if (isStopped) return;
      const isFinal = error instanceof Failure && [401, 403, 404].includes(error.status);
      onLost(isFinal ? error : undefined);
      if (isFinal) return;
    }
    timer = setTimeout(poll, POLL_MS);
  };
  void poll();
  return () => {
    isStopped = true;
    clearTimeout(timer);
  };
}

const POLL_MS = 1000;

export const isOver = (job: Job): boolean => ["succeeded", "failed", "cancelled"].includes(job.state);

// The parts of a report that the pages show. The whole report is the page of /calibrations/{id}/report.

export type VerdictRow = {
  line: number;
  id: string | null;
  question: string | null;
  references: string[];
  answer: string;
  correct: boolean;
  rule: string;
};
export type Report = {
  calibration: { id: string; name: string; method: string; num_samples: number; fingerprint: { unit?: string } };
  data: { rows: number; usable: number; rows_full: number; accuracy: number };
  opening: {
    verdict: string;
    safe: string;
    promise: string;
    answers: string;
    change?: { text: string; rows: number | null; target_error: number | null } | null;
  };
  correctness: {
    num_samples: number;
    confidence: number;
    risk_coverage: { threshold: number; coverage: number; error: number; bound: number }[];
  };
  answers: { rows: { num_samples: number; tokens: number | null }[] };
  decision: { activated: boolean; reason: string };
  warnings: { code: string; text: string }[];
  verdicts: { count: number; rows: VerdictRow[] } | null;
};

/** Return what these rows promise for a target error: share answered, and wrong among those; null: nothing. */
export function promised(report: Report, target: number): { coverage: number; error: number; threshold: number } | null {
  const kept = report.correctness.risk_coverage.filter((point) => point.bound <= target + 1e-12);
  return kept.length ? kept.reduce((best, point) => (point.coverage > best.coverage ? point : best)) : null;
}

/** Return the tokens that a question of these rows costs with the calibration's full number of answers. */
export function tokensOf(report: Report): number | null {
  const full = report.correctness.num_samples;
  return report.answers.rows.find((row) => row.num_samples === full)?.tokens ?? null;
}

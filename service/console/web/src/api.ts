// Calls of the service's API, on the host and under the path prefix that served this page.
import type { components } from "../../../../clients/typescript/src/openapi";

type Schemas = components["schemas"];
export type Score = Schemas["Score"];
export type ScoreRequest = Schemas["ScoreRequest"];
export type Job = Schemas["Job"];
export type Calibration = Schemas["CalibrationOut"];
export type Activation = Schemas["Activation"];
export type Problem = Schemas["Problem"];
export type Session = { score: boolean; admin: boolean; signed_in: boolean; version: string };

/** The root of the API: the page is one folder below it. */
export const ROOT = new URL("..", document.baseURI);

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
  const requestId = response.headers.get("x-request-id") ?? "";
  const problem = await response.json().catch(() => ({}));
  return asFailure(problem, response.status, requestId);
}

/** Return the failure that a problem document reports. */
export function asFailure(problem: Partial<Problem>, status: number, requestId = ""): Failure {
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
export async function call<T>(path: string, method = "GET", body?: unknown): Promise<T> {
  const headers: Record<string, string> = { Accept: "application/json" };
  if (body !== undefined) headers["Content-Type"] = "application/json";
  const sent = body === undefined ? {} : { body: JSON.stringify(body) };
  const response = await request(path, { method, headers, ...sent });
  return (response.status === 204 ? undefined : await response.json()) as T;
}

/** Score a prompt. `onAnswer` gets each answer when it is drawn. Throws Failure. */
export async function streamScore(
  body: ScoreRequest,
  onAnswer: (text: string) => void,
  signal: AbortSignal,
): Promise<Score> {
  const headers = { "Content-Type": "application/json", Accept: "text/event-stream" };
  const response = await request("/score", { method: "POST", headers, body: JSON.stringify(body), signal });
  const requestId = response.headers.get("x-request-id") ?? "";
  try {
    for await (const event of events(response)) {
      const data = JSON.parse(event.data);
      if (event.name === "answer") onAnswer(data.text);
      else if (event.name === "score") return data;
      else if (event.name === "error") throw asFailure(data, data.status, requestId);
    }
  } catch (error) {
    if (error instanceof Failure || signal.aborted) throw error;
  }
  throw new Failure("", 0, "", requestId); // the connection broke
}

async function* events(response: Response): AsyncGenerator<{ name: string; data: string }> {
  const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      text = (text + value).replaceAll("\r\n", "\n");
      for (let end = text.indexOf("\n\n"); end >= 0; end = text.indexOf("\n\n")) {
        const lines = text.slice(0, end).split("\n");
        text = text.slice(end + 2);
        const value = (field: string) =>
          lines.filter((line) => line.startsWith(`${field}:`)).map((line) => line.slice(field.length + 1).trimStart());
        if (value("data").length) yield { name: value("event")[0] ?? "message", data: value("data").join("\n") };
      }
    }
  } finally {
    await reader.cancel().catch(() => undefined);
  }
}

/**
 * Follow a job until it ends. Return a function that stops following it.
 * onLost: called while the connection is lost, or with the failure if the job cannot be followed any more.
 */
export function follow(id: string, onJob: (job: Job) => void, onLost: (failure?: Failure) => void): () => void {
  const source = new EventSource(address(`/jobs/${id}/events`));
  source.addEventListener("job", (event) => {
    const job: Job = JSON.parse((event as MessageEvent<string>).data);
    if (isOver(job)) source.close();
    onJob(job);
  });
  let isStopped = false;
  let stop = () => source.close();
  const again = async () => {
    const failure = await call(`/jobs/${id}`).catch((error: unknown) => error);
    if (isStopped) return;
    if (failure instanceof Failure && [401, 403, 404].includes(failure.status)) onLost(failure);
    else stop = follow(id, onJob, onLost);
  };
  source.addEventListener("error", () => {
    onLost();
    if (source.readyState === EventSource.CLOSED) setTimeout(again, 3000); // otherwise the browser connects again
  });
  return () => {
    isStopped = true;
    stop();
  };
}

export const isOver = (job: Job): boolean => ["succeeded", "failed", "cancelled"].includes(job.state);

// The parts of a report that the pages show. The whole report is the page of /calibrations/{id}/report.

export type Estimate = { value: number | null; low: number | null; high: number | null };
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
  served: { map: string; projection_ece: number; auroc_lambda_max: Estimate; risk: number }[];
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
    by_num_samples: { num_samples: number; right: number; wrong: number; auroc: Estimate }[];
  };
  answers: { rows: { num_samples: number; tokens: number | null }[] };
  decision: { activated: boolean; reason: string };
  warnings: { code: string; text: string }[];
  verdicts: { count: number; rows: VerdictRow[] } | null;
};

/** Return the gap between confidence and observed share before and after calibration. */
export function gaps(report: Report): { before: number | null; after: number | null } {
  const at = (name: string) => report.served.find((row) => row.map === name)?.projection_ece ?? null;
  return { before: at("raw"), after: at(report.calibration.method) };
}

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

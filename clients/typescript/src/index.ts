// Client of Eigencal. The types in openapi.ts are generated from the contract.
import type { components } from "./openapi.js";

type Schemas = components["schemas"];
export type Calibration = Schemas["CalibrationOut"];
export type Job = Schemas["Job"];
export type KeptScore = Schemas["KeptScore"] & Partial<Score>;
export type Problem = Schemas["Problem"];
export type Row = Schemas["ExampleIn"];
export type Score = Schemas["Score"];
export type ScoreRequest = Schemas["ScoreRequest"];

/** A score of a batch, or its error. `index` is the position of the request. */
export type BatchItem =
  | { index: number; result: Score; error?: never }
  | { index: number; result?: never; error: Problem };

export interface ClientOptions {
  /** URL of the service. Default: http://127.0.0.1:8000. In a browser, a path of the page's origin is allowed. */
  baseUrl?: string | undefined;
  /** Score key or admin key. */
  key?: string | undefined;
  /** Time limit of one attempt of a call, in ms. Default: 120,000; for `batch` and `calibrate` 600,000. */
  timeoutMs?: number | undefined;
  /** Number of retries after a failed connection and after 429 and 503. Default: 2. */
  maxRetries?: number | undefined;
}

export interface CallOptions {
  /** Aborts the call. The call rejects with the signal's reason. */
  signal?: AbortSignal | undefined;
  timeoutMs?: number | undefined;
  maxRetries?: number | undefined;
}

/** Options of the job and of the call. The same data with the same `idempotencyKey` give the same job. */
export type CalibrateOptions = Omit<Schemas["CalibrateRequest"], "examples"> &
  CallOptions & { idempotencyKey?: string | undefined };

export interface WaitOptions extends CallOptions {
  /** Called with the job after each poll. */
  onProgress?: ((job: Job) => void) | undefined;
  /** Time between two polls, in ms. Default: 1,000. */
  intervalMs?: number | undefined;
}

/** An error of the service, a failed connection (`connection_failed`), a timeout (`timed_out`) or a failed job. */
export class EigencalError extends Error {
  override readonly name = "EigencalError";
  readonly code: string;
  /** HTTP status. Undefined if there was no response. */
  readonly status: number | undefined;
  /** Whether the same call may succeed later. */
  readonly retryable: boolean;
  readonly requestId: string | undefined;
  /** Body of the error, with its further fields such as `errors`. */
  readonly problem: Partial<Problem>;

  constructor(problem: Partial<Problem>, options?: ErrorOptions) {
    super(`${problem.code}: ${problem.detail}`, options);
    this.code = problem.code ?? "unknown";
    this.status = problem.status;
    this.retryable = problem.retryable ?? false;
    this.requestId = problem.request_id ?? undefined;
    this.problem = problem;
  }
}

type Call = CallOptions & { headers?: Record<string, string>; json?: unknown; form?: FormData };

const TIMEOUT_MS = 120_000;
const LONG_TIMEOUT_MS = 600_000;
const FIRST_WAIT_MS = 500;
const MAX_WAIT_MS = 60_000;

export class Eigencal {
  readonly #baseUrl: string;
  readonly #headers: Record<string, string>;
  readonly #options: ClientOptions;

  constructor(options: ClientOptions = {}) {
    const base = (globalThis as { location?: { href: string } }).location?.href;
    this.#baseUrl = new URL(options.baseUrl ?? "http://127.0.0.1:8000", base).href.replace(/\/+$/, "");
    const key = options.key?.trim();
    this.#headers = key ? { authorization: `Bearer ${key}` } : {};
    this.#options = options;
  }

  /** Score a prompt or a request. */
  async score(request: string | ScoreRequest, options: CallOptions = {}): Promise<Score> {
    return this.#json("POST", "/score", { ...options, json: asRequest(request) });
  }

  /** Score up to 256 requests. Yield items as they finish. A failed item has an `error`. */
  async *batch(
    requests: readonly (string | ScoreRequest)[],
    options: CallOptions = {},
  ): AsyncGenerator<BatchItem, void, undefined> {
    const json = { items: requests.map(asRequest) };
    const response = await this.#send("POST", "/score/batch", { timeoutMs: this.#longTimeout(), ...options, json });
    let missing = requests.length;
    try {
      for await (const line of linesOf(response)) {
        yield JSON.parse(line) as BatchItem;
        missing -= 1;
      }
    } catch (error) {
      throw failureOf(error, options.signal);
    }
    if (missing) throw new EigencalError({ code: "connection_failed", detail: `${missing} items are missing.`, retryable: true });
  }

  /** Return a score by its id. The service stores scores for an hour. */
  async getScore(id: string, options: CallOptions = {}): Promise<KeptScore> {
    return this.#json("GET", `/scores/${encodeURIComponent(id)}`, options);
  }

  /** Start a calibration on labelled rows, or on a file of rows (JSONL or CSV). */
  async calibrate(rows: readonly Row[] | Blob, options: CalibrateOptions = {}): Promise<Job> {
    const { signal, timeoutMs = this.#longTimeout(), maxRetries, idempotencyKey, ...fields } = options;
    // With a key, a retry after a lost response gives the same job.
    const headers = { "idempotency-key": idempotencyKey ?? randomKey() };
    const call = { signal, timeoutMs, maxRetries, headers };
    if (!(rows instanceof Blob)) return this.#json("POST", "/calibrate", { ...call, json: { examples: rows, ...fields } });
    const form = new FormData();
    for (const [name, value] of Object.entries(fields)) if (value !== undefined) form.append(name, String(value));
    form.append("file", rows);
    return this.#json("POST", "/calibrate", { ...call, form });
  }

  /** Return the current state of a job. */
  async job(id: string, options: CallOptions = {}): Promise<Job> {
    return this.#json("GET", `/jobs/${encodeURIComponent(id)}`, options);
  }

  /** Poll a job until it ends. Return the succeeded job. Throws EigencalError if it failed or was cancelled. */
  async waitForJob(id: string, { onProgress, intervalMs = 1000, ...options }: WaitOptions = {}): Promise<Job> {
    for (;;) {
      const job = await this.job(id, options);
      onProgress?.(job);
      if (job.state === "succeeded") return job;
      if (job.state === "failed" || job.state === "cancelled") {
        throw new EigencalError({ code: job.error?.code ?? job.state, detail: job.error?.detail ?? `The job was ${job.state}.` });
      }
      await pause(intervalMs, options.signal);
    }
  }

  /** Return all calibrations, latest first. */
  async calibrations(options: CallOptions = {}): Promise<Calibration[]> {
    return this.#json("GET", "/calibrations", options);
  }

  /** Activate a calibration and return it. */
  async activate(id: string, options: CallOptions = {}): Promise<Calibration> {
    return this.#json("POST", `/calibrations/${encodeURIComponent(id)}/activate`, options);
  }

  #longTimeout(): number {
    return this.#options.timeoutMs ?? LONG_TIMEOUT_MS;
  }

  async #json<T>(method: string, path: string, call: Call): Promise<T> {
    const response = await this.#send(method, path, call);
    try {
      return (await response.json()) as T;
    } catch (error) {
      throw failureOf(error, call.signal);
    }
  }

  /** Send a request, with retries. Return the successful response. Throws EigencalError. */
  async #send(method: string, path: string, call: Call): Promise<Response> {
    const headers = new Headers({ ...this.#headers, ...call.headers });
    if (call.json !== undefined) headers.set("content-type", "application/json");
    const body = call.form ?? (call.json === undefined ? null : JSON.stringify(call.json));
    const maxRetries = call.maxRetries ?? this.#options.maxRetries ?? 2;
    for (let attempt = 0; ; attempt += 1) {
      const timeout = AbortSignal.timeout(call.timeoutMs ?? this.#options.timeoutMs ?? TIMEOUT_MS);
      const signal = call.signal ? AbortSignal.any([call.signal, timeout]) : timeout;
      let error: EigencalError;
      let waitMs = FIRST_WAIT_MS * 2 ** attempt * (0.5 + Math.random() / 2);
      try {
        // A followed redirect would send the prompt to another host.
        const response = await fetch(this.#baseUrl + path, { method, headers, body, signal, redirect: "manual" });
        if (response.ok) return response;
        error = new EigencalError(await problemOf(response));
        waitMs = retryAfterMs(response) ?? waitMs;
      } catch (cause) {
        error = failureOf(cause, call.signal);
      }
      const canRetry = error.code === "connection_failed" || error.status === 429 || (error.status === 503 && error.retryable);
      if (!canRetry || attempt >= maxRetries || waitMs > MAX_WAIT_MS) throw error;
      await pause(waitMs, call.signal);
    }
  }
}

const asRequest = (request: string | ScoreRequest): ScoreRequest =>
  typeof request === "string" ? { prompt: request } : request;

/** Return the error of a failed attempt. Throws the reason of the caller's signal if it is aborted. */
function failureOf(cause: unknown, signal: AbortSignal | undefined): EigencalError {
  if (signal?.aborted) throw signal.reason;
  if (cause instanceof SyntaxError) return new EigencalError({ code: "bad_response", detail: "The response is not valid JSON." }, { cause });
  if (cause instanceof DOMException && cause.name === "TimeoutError") {
    return new EigencalError({ code: "timed_out", detail: "The time limit has passed.", retryable: true }, { cause });
  }
  return new EigencalError({ code: "connection_failed", detail: "The connection failed.", retryable: true }, { cause });
}

/** Return the problem of a response. Responses of a proxy may have no problem. */
async function problemOf(response: Response): Promise<Partial<Problem>> {
  const { status } = response;
  const body: Partial<Problem> | null = await response.json().catch(() => null);
  return {
    code: `http_${status}`,
    detail: `The response has status ${status}.`,
    retryable: status === 429 || status === 503,
    request_id: response.headers.get("x-request-id"),
    ...(typeof body?.code === "string" ? body : {}),
    status,
  };
}

/** Return the delay that Retry-After asks for, as seconds or as a date. */
function retryAfterMs(response: Response): number | undefined {
  const header = response.headers.get("retry-after")?.trim();
  if (!header) return undefined;
  const ms = /^\d+$/.test(header) ? Number(header) * 1000 : Date.parse(header) - Date.now();
  return Number.isNaN(ms) ? undefined : Math.max(0, ms);
}

/** Yield the non-empty lines of a response. Leaving the loop cancels the response. */
async function* linesOf(response: Response): AsyncGenerator<string> {
  const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  try {
    for (;;) {
      const { done, value = "\n" } = await reader.read();
      const lines = (text + value).split("\n");
      text = lines.pop()!;
      for (const line of lines) if (line) yield line;
      if (done) return;
    }
  } finally {
    await reader.cancel().catch(() => undefined);
  }
}

/** Return a random key. Pages without TLS have no `randomUUID`. */
const randomKey = (): string =>
  Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");

/** Wait. Rejects with the signal's reason if it is aborted. */
function pause(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const stop = () => (clearTimeout(timer), reject(signal!.reason));
    const timer = setTimeout(() => (signal?.removeEventListener("abort", stop), resolve()), ms);
    if (signal?.aborted) stop();
    else signal?.addEventListener("abort", stop, { once: true });
  });
}

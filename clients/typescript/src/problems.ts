// From an answer that is no success to the error that tells it.
import * as errors from "./errors.js";
import type { Problem } from "./types.js";

type Kind = new (facts: errors.ErrorFacts) => errors.EigencalError;

/** The class of each code of the service. */
export const BY_CODE: Readonly<Record<string, Kind>> = {
  invalid_request: errors.InvalidRequestError,
  bad_request: errors.InvalidRequestError,
  method_not_allowed: errors.InvalidRequestError,
  too_few_samples: errors.TooFewSamplesError,
  invalid_dev_data: errors.InvalidDevDataError,
  body_too_large: errors.BodyTooLargeError,
  unsupported_media_type: errors.UnsupportedMediaTypeError,
  missing_key: errors.AuthenticationError,
  bad_key: errors.AuthenticationError,
  scope_required: errors.ScopeRequiredError,
  not_found: errors.NotFoundError,
  model_not_found: errors.ModelNotFoundError,
  conflict: errors.ConflictError,
  rate_limited: errors.RateLimitedError,
  llm_error: errors.LLMError,
  llm_bad_response: errors.LLMBadResponseError,
  no_usable_answers: errors.NoUsableAnswersError,
  overloaded: errors.OverloadedError,
  llm_unavailable: errors.LLMUnavailableError,
  embedder_unavailable: errors.EmbedderUnavailableError,
  store_unavailable: errors.StoreUnavailableError,
  no_probability: errors.NoProbabilityError,
  deadline_exceeded: errors.DeadlineExceededError,
  damaged_row: errors.InternalError,
  internal: errors.InternalError,
};
// For codes of others: of a proxy before the service, or of the LLM server behind it.
const BY_STATUS: Readonly<Record<number, Kind>> = {
  401: errors.AuthenticationError,
  403: errors.ScopeRequiredError,
  404: errors.NotFoundError,
  409: errors.ConflictError,
  429: errors.RateLimitedError,
  503: errors.UnavailableError,
  504: errors.DeadlineExceededError,
};
const COMES_BACK = new Set([429, 502, 503, 504]);

/** Return the error of an answer that is no success. */
export async function errorOf(response: Response): Promise<errors.EigencalError> {
  return errorFrom(await bodyOf(response), response.status, response.headers);
}

/** Return the error that a body tells: of an answer, an item of a batch, or an event of a stream. */
export function errorFrom(body: unknown, status?: number, headers?: Headers): errors.EigencalError {
  const problem = problemIn(body);
  const known = status ?? problem.status;
  const code = problem.code || (known ? `http_${known}` : "unknown");
  const facts = {
    code,
    detail: problem.detail || `the answer has status ${known ?? "unknown"} and says nothing more`,
    status: known,
    requestId: problem.request_id ?? headers?.get("x-request-id") ?? undefined,
    retryable: problem.retryable ?? COMES_BACK.has(known ?? 0),
    retryAfterMs: waitOf(headers?.get("retry-after")),
    problem,
  };
  return new (kindOf(code, known ?? 0))(facts);
}

/** Return what Retry-After asks for, in milliseconds: it is seconds, or a date. */
export function waitOf(header: string | null | undefined): number | undefined {
  if (!header?.trim()) return undefined;
  const ms = /^\s*\d+(\.\d+)?\s*$/.test(header) ? Number(header) * 1000 : Date.parse(header) - Date.now();
  return Number.isFinite(ms) ? Math.max(0, ms) : undefined;
}

function kindOf(code: string, status: number): Kind {
  if (Object.hasOwn(BY_CODE, code)) return BY_CODE[code] ?? errors.EigencalError;
  if (BY_STATUS[status]) return BY_STATUS[status];
  if (status >= 500) return errors.InternalError;
  return status >= 400 ? errors.InvalidRequestError : errors.EigencalError;
}

async function bodyOf(response: Response): Promise<unknown> {
  const text = await response.text();
  try {
    return JSON.parse(text);
  } catch {
    return {}; // a proxy's page
  }
}

/** What the client reads of a problem, and of what type it is. */
const READ = { code: "string", detail: "string", status: "number", request_id: "string", retryable: "boolean" };

/** Take a problem as it is, and OpenAI's `{error: {message, code}}` as one. */
function problemIn(body: unknown): Partial<Problem> {
  if (typeof body !== "object" || body === null) return {};
  if (!("error" in body)) return fitting(body);
  const { message, code } = Object(body.error) as { message?: unknown; code?: unknown };
  return fitting({ code, detail: message });
}

/** Leave out what is of another type: a proxy's `{"status": "error"}` is its own, and says nothing of ours. */
function fitting(body: object): Partial<Problem> {
  const types: Record<string, string | undefined> = READ;
  const fits = ([name, value]: [string, unknown]): boolean =>
    name === "errors" ? Array.isArray(value) : !Object.hasOwn(types, name) || typeof value === types[name];
  return Object.fromEntries(Object.entries(body).filter(fits)) as Partial<Problem>;
}

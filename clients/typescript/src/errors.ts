import type { JobState, Problem } from "./types.js";

/** What an error is told by. */
export interface ErrorFacts {
  code: string;
  detail: string;
  status?: number | undefined;
  requestId?: string | undefined;
  retryable?: boolean | undefined;
  retryAfterMs?: number | undefined;
  problem?: Partial<Problem> | undefined;
  cause?: unknown;
}

/**
 * Base of everything that the client raises of its own; an aborted call rejects with the signal's reason.
 *
 *     EigencalError
 *     ├── InvalidRequestError          what was sent does not fit; `errors` says where
 *     │   ├── TooFewSamplesError
 *     │   ├── InvalidDevDataError      rows that cannot be used
 *     │   ├── BodyTooLargeError
 *     │   └── UnsupportedMediaTypeError
 *     ├── AuthenticationError          no key, or one that opens nothing
 *     ├── ScopeRequiredError           the key does not open this route
 *     ├── NotFoundError
 *     │   └── ModelNotFoundError
 *     ├── ConflictError
 *     ├── RateLimitedError
 *     ├── LLMError                     the LLM server answered with an error
 *     │   └── LLMBadResponseError      ... or with something that is no completion
 *     ├── NoUsableAnswersError         too few of the answers drawn hold a text
 *     ├── UnavailableError             a part of the service cannot work for now
 *     │   ├── OverloadedError
 *     │   ├── LLMUnavailableError
 *     │   ├── EmbedderUnavailableError
 *     │   ├── StoreUnavailableError
 *     │   └── NoProbabilityError       nothing tells how likely an answer is right
 *     ├── DeadlineExceededError        fewer than two answers came before the deadline
 *     ├── InternalError
 *     ├── ConnectionError              no whole answer came
 *     │   └── TimeoutError             ... within `timeoutMs`
 *     └── JobFailedError               a job that was waited for failed or was cancelled; `job` is its end
 */
export class EigencalError extends Error {
  /** What went wrong, for a program. */
  readonly code: string;
  /** What went wrong, for a person. */
  readonly detail: string;
  /** The HTTP status; undefined where no answer came, or an item of a batch has none. */
  readonly status: number | undefined;
  /** The request's id, by which the service's log finds it. */
  readonly requestId: string | undefined;
  /** Whether the same request may succeed later. */
  readonly retryable: boolean;
  /** When to come back, if the service said so. */
  readonly retryAfterMs: number | undefined;
  /** The whole body of the error, with members of its own such as `limit_bytes`. */
  readonly problem: Partial<Problem>;

  constructor(facts: ErrorFacts) {
    const id = facts.requestId ? ` (request ${facts.requestId})` : "";
    super(`${facts.code}: ${facts.detail}${id}`, facts.cause === undefined ? {} : { cause: facts.cause });
    this.name = new.target.name;
    this.code = facts.code;
    this.detail = facts.detail;
    this.status = facts.status;
    this.requestId = facts.requestId;
    this.retryable = facts.retryable ?? false;
    this.retryAfterMs = facts.retryAfterMs;
    this.problem = facts.problem ?? {};
  }

  /** Of a request that does not fit: each thing wrong, and where. */
  get errors(): NonNullable<Problem["errors"]> {
    return this.problem.errors ?? [];
  }
}

export class InvalidRequestError extends EigencalError {}
export class TooFewSamplesError extends InvalidRequestError {}
export class InvalidDevDataError extends InvalidRequestError {}
export class BodyTooLargeError extends InvalidRequestError {}
export class UnsupportedMediaTypeError extends InvalidRequestError {}
export class AuthenticationError extends EigencalError {}
export class ScopeRequiredError extends EigencalError {}
export class NotFoundError extends EigencalError {}
export class ModelNotFoundError extends NotFoundError {}
export class ConflictError extends EigencalError {}
export class RateLimitedError extends EigencalError {}
export class LLMError extends EigencalError {}
export class LLMBadResponseError extends LLMError {}
export class NoUsableAnswersError extends EigencalError {}
export class UnavailableError extends EigencalError {}
export class OverloadedError extends UnavailableError {}
export class LLMUnavailableError extends UnavailableError {}
export class EmbedderUnavailableError extends UnavailableError {}
export class StoreUnavailableError extends UnavailableError {}
export class NoProbabilityError extends UnavailableError {}
export class DeadlineExceededError extends EigencalError {}
export class InternalError extends EigencalError {}

/** The service could not be reached, or the connection ended before the answer did. */
export class ConnectionError extends EigencalError {
  constructor(detail: string, cause?: unknown, code = "connection_failed") {
    super({ code, detail, retryable: true, cause });
  }
}

/** Nothing came for `timeoutMs`. */
export class TimeoutError extends ConnectionError {
  constructor(detail: string, cause?: unknown) {
    super(detail, cause, "timed_out");
  }
}

/** A job that was waited for has failed or was cancelled. */
export class JobFailedError extends EigencalError {
  readonly job: JobState;

  constructor(job: JobState) {
    super({ code: job.error?.code ?? job.state, detail: job.error?.detail ?? `the job was ${job.state}` });
    this.job = job;
  }
}

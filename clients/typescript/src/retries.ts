import { ConnectionError, EigencalError, TimeoutError } from "./errors.js";

const FIRST_MS = 500;
const MOST_MS = 8_000;
/** A service that asks for a longer wait gets none: the error says how long, and the caller decides. */
export const LONGEST_WAIT_MS = 60_000;
const TURNED_AWAY = new Set([429, 503]); // before any work was done
const FAILED_BEHIND = new Set([502, 504]);

/**
 * Return how long to wait before a call is made again; undefined: it is not safe, or of no use.
 *
 * `once`: a call that must not be carried out twice. Whether one was carried out is not known where the
 * connection failed. After a timeout the service may still be at work, and a second call would double it.
 */
export function waitBefore(error: unknown, attempt: number, once: boolean): number | undefined {
  if (!(error instanceof EigencalError) || error instanceof TimeoutError || !isWorthIt(error, once)) return undefined;
  const asked = error.retryAfterMs;
  if (asked !== undefined) return asked <= LONGEST_WAIT_MS ? asked : undefined;
  // Not all callers at the same moment, or they would keep one another out.
  return Math.min(FIRST_MS * 2 ** attempt, MOST_MS) * (0.5 + Math.random() / 2);
}

function isWorthIt(error: EigencalError, once: boolean): boolean {
  const status = error.status ?? 0;
  if (status === 429 || (TURNED_AWAY.has(status) && error.retryable)) return true;
  return !once && (error instanceof ConnectionError || (FAILED_BEHIND.has(status) && error.retryable));
}

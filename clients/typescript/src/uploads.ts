import { LONG_MS } from "./patience.js";
import type { Call } from "./transport.js";
import type { CallOptions, Row } from "./types.js";

/** Labelled rows, or a file of them: JSONL, JSONL.gz or CSV. */
export type DevData = readonly Row[] | Blob;

/** Settings of a call that starts a job. */
export interface SubmitOptions extends CallOptions {
  /** The same data under the same key give the same job; left out, each call has one of its own. */
  idempotencyKey?: string | undefined;
}

const OURS: ReadonlySet<string> = new Set(["signal", "timeoutMs", "maxRetries", "headers", "idempotencyKey"]);

/**
 * Return the call that uploads these parts: all files, or all rows.
 *
 * The options of the call and those of the service come in one object; the latter are told in the body.
 */
export function upload(files: Record<string, Blob>, rows: Record<string, readonly Row[]>, options: SubmitOptions): Call {
  const { signal, timeoutMs = LONG_MS, maxRetries, idempotencyKey } = options;
  const headers = { "idempotency-key": idempotencyKey ?? freshKey(), ...options.headers };
  const told = Object.entries(options).filter(([name, value]) => !OURS.has(name) && value !== undefined);
  const call = { signal, timeoutMs, maxRetries, headers };
  if (!Object.keys(files).length) return { ...call, json: { ...rows, ...Object.fromEntries(told) } };
  const form = new FormData();
  for (const [name, value] of told) form.append(name, String(value));
  for (const [name, file] of Object.entries(files)) form.append(name, file, fileName(file));
  return { ...call, form };
}

function fileName(file: Blob): string {
  return "name" in file && typeof file.name === "string" ? file.name : "rows";
}

/** A repetition after a lost answer must be known as one. Pages without TLS have no `randomUUID`. */
function freshKey(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

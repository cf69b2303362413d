import { ConnectionError, TimeoutError } from "./errors.js";

/**
 * For what takes long by nature: an item of a batch may wait for its turn for 300 s, an upload is silent until its
 * last byte is checked. Node's own fetch gives up after 300 s of silence.
 */
export const LONG_MS = 290_000;
/** As long as a timer runs; one that is set for longer ends at once. */
const MOST_MS = 2 ** 31 - 1;
const GIVEN_UP_BY_NODE = /^UND_ERR_(HEADERS|BODY)_TIMEOUT$/;

/** How long one attempt may be silent, and whether its caller still wants it. */
export class Patience {
  readonly #controller = new AbortController();
  readonly #timeoutMs: number;
  readonly #url: string;
  readonly #caller: AbortSignal | undefined;
  #timer: ReturnType<typeof setTimeout> | undefined;

  /** `timeoutMs`: Infinity waits for as long as it takes. `url`: who is waited for. */
  constructor(timeoutMs: number, url: string, caller?: AbortSignal) {
    this.#url = url;
    this.#timeoutMs = timeoutMs === Infinity ? timeoutMs : Math.min(timeoutMs, MOST_MS);
    this.#caller = caller;
    caller?.addEventListener("abort", this.#stop, { once: true });
    this.renew();
  }

  /** The signal that ends the attempt. */
  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  /** Something came: begin to wait anew. */
  renew(): void {
    this.rest();
    if (this.#timeoutMs < Infinity) this.#timer = setTimeout(this.#tooLate, this.#timeoutMs);
  }

  /** Wait for nothing until `renew`. */
  rest(): void {
    clearTimeout(this.#timer);
  }

  /** Let go of timer and listener, and of what has not been read. */
  end(): void {
    this.rest();
    this.#caller?.removeEventListener("abort", this.#stop);
    this.#controller.abort();
  }

  /** Return what a fetch, or the reading of its answer, comes to. Raises ConnectionError, or what ended it. */
  async over<T>(work: Promise<T> | T): Promise<T> {
    try {
      return await work;
    } catch (error) {
      if (this.signal.aborted) throw this.signal.reason;
      if (isGivenUp(error)) throw new TimeoutError(`nothing came from ${this.#url} for as long as the platform waits`, error);
      throw new ConnectionError(`${this.#url} cannot be reached, or ended the connection`, error);
    }
  }

  readonly #tooLate = (): void =>
    this.#controller.abort(new TimeoutError(`nothing came from ${this.#url} for ${this.#timeoutMs} ms`));

  readonly #stop = (): void => this.#controller.abort(this.#caller?.reason);
}

function isGivenUp(error: unknown): boolean {
  const { code } = Object(Object(error).cause) as { code?: unknown };
  return GIVEN_UP_BY_NODE.test(String(code));
}

/** Return a number that is at least so much. Raises TypeError for another, and for what is no number. */
export function atLeast(least: number, name: string, value: number): number {
  if (typeof value === "number" && value >= least) return value;
  throw new TypeError(`${name} must be a number from ${least} on, not ${String(value)}`);
}

/** Wait so long, or until the signal ends it; then it rejects with the signal's reason. */
export async function pause(ms: number, signal?: AbortSignal): Promise<void> {
  signal?.throwIfAborted();
  return new Promise((resolve, reject) => {
    const stop = (): void => {
      clearTimeout(timer);
      reject(signal?.reason);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", stop);
      resolve();
    }, ms);
    signal?.addEventListener("abort", stop, { once: true });
  });
}

import type { Answer, Operation } from "./contract.js";
import { EigencalError } from "./errors.js";
import { atLeast, Patience, pause } from "./patience.js";
import { errorOf } from "./problems.js";
import { isRedirect, redirected } from "./redirects.js";
import { waitBefore } from "./retries.js";
import type { CallOptions } from "./types.js";

/** What a transport is made of. */
export interface Settings {
  baseUrl: string;
  headers: Record<string, string>;
  timeoutMs: number;
  maxRetries: number;
  fetch: typeof fetch;
}

/** One call: what fills its path, what is sent, and its settings. */
export interface Call extends CallOptions {
  ids?: readonly string[];
  query?: Record<string, string | number | undefined>;
  json?: unknown;
  form?: FormData;
  accept?: string;
  /** It must not be carried out twice. */
  once?: boolean;
}

/** Sends operations of the contract: timeouts, retries, and errors as they are told. */
export class Transport {
  readonly #settings: Settings;

  constructor(settings: Settings) {
    this.#settings = settings;
  }

  /** Return the JSON that an operation answers with. */
  async json<O extends Operation>(operation: O, call: Call = {}): Promise<Answer<O>> {
    return parsed(await this.text(operation, { accept: "application/json", ...call })) as Answer<O>;
  }

  /** Return the body that an operation answers with. */
  async text(operation: Operation, call: Call = {}): Promise<string> {
    return this.#attempts(operation, call, async (response, patience) => {
      const text = await patience.over(response.text());
      patience.end();
      return text;
    });
  }

  /** Yield the body in pieces, as they come. Once it has begun, the call is not made again. */
  async *pieces(operation: Operation, call: Call = {}): AsyncGenerator<Uint8Array> {
    const opened = async (response: Response, patience: Patience) => ({ response, patience });
    const { response, patience } = await this.#attempts(operation, call, opened);
    const reader = response.body?.getReader();
    try {
      for (;;) {
        patience.renew();
        const next = await patience.over(reader?.read());
        if (!next || next.done) return;
        patience.rest(); // what the caller does meanwhile is no silence of the service
        yield next.value;
      }
    } finally {
      patience.end();
    }
  }

  async #attempts<T>(
    operation: Operation,
    call: Call,
    read: (response: Response, patience: Patience) => Promise<T>,
  ): Promise<T> {
    const request = prepared(operation, call, this.#settings);
    const most = atLeast(0, "maxRetries", call.maxRetries ?? this.#settings.maxRetries);
    const timeoutMs = atLeast(1, "timeoutMs", call.timeoutMs ?? this.#settings.timeoutMs);
    for (let number = 0; ; number++) {
      call.signal?.throwIfAborted();
      const patience = new Patience(timeoutMs, request[0], call.signal);
      try {
        return await read(await this.#answer(request, patience), patience);
      } catch (error) {
        patience.end();
        const wait = number < most ? waitBefore(error, number, call.once ?? false) : undefined;
        if (wait === undefined) throw error;
        await pause(wait, call.signal);
      }
    }
  }

  async #answer([url, init]: [string, RequestInit], patience: Patience): Promise<Response> {
    const { fetch } = this.#settings; // called without `this`, as browsers ask for
    const response = await patience.over(fetch(url, { ...init, redirect: "manual", signal: patience.signal }));
    if (isRedirect(response)) throw redirected(url, response);
    if (!response.ok) throw await patience.over(errorOf(response));
    return response;
  }
}

/** Return address and rest of a request. What is wrong with them is the caller's mistake: a TypeError. */
function prepared(operation: Operation, call: Call, settings: Settings): [string, RequestInit] {
  const [method = "", template = ""] = operation.split(" ");
  const headers = new Headers({ accept: call.accept ?? "*/*", ...settings.headers });
  for (const [name, value] of Object.entries(call.headers ?? {})) headers.set(name, value);
  const url = settings.baseUrl + filled(template, call.ids ?? []) + queryOf(call.query ?? {});
  if (call.form) return [url, { method, headers, body: call.form }];
  if (call.json === undefined) return [url, { method, headers }];
  headers.set("content-type", "application/json");
  return [url, { method, headers, body: JSON.stringify(call.json) }];
}

function filled(template: string, ids: readonly string[]): string {
  const left = [...ids];
  return template.replace(/\{\w+\}/g, () => segmentOf(left.shift()));
}

/** Of these, `fetch` would make the path of another operation, and nothing that is encoded comes to the same. */
function segmentOf(id: unknown): string {
  if (typeof id !== "string" || ["", ".", ".."].includes(id)) {
    throw new TypeError(`an id must be text, and not empty or dots: ${JSON.stringify(id)}`);
  }
  return encodeURIComponent(id);
}

function queryOf(query: NonNullable<Call["query"]>): string {
  const given = Object.entries(query).filter(([, value]) => value !== undefined);
  return given.length ? `?${new URLSearchParams(given.map(([name, value]) => [name, String(value)]))}` : "";
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch (cause) {
    throw new EigencalError({ code: "bad_response", detail: "the answer is no JSON", cause });
  }
}

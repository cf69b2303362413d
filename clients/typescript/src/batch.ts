import { ConnectionError, EigencalError, TimeoutError } from "./errors.js";
import { isObject, recordsOf } from "./lines.js";
import { LONG_MS } from "./patience.js";
import { errorFrom } from "./problems.js";
import type { Transport } from "./transport.js";
import type { BatchItem, CallOptions, Score, ScoreRequest } from "./types.js";

/** As many requests as the service takes in one call. */
export const MOST_AT_ONCE = 256;

/** Settings of a batch. */
export interface BatchOptions extends CallOptions {
  /** How many requests go in one call, 1 to 256: fewer, where they come slowly and answers shall not wait. */
  batchSize?: number | undefined;
}

/** A prompt, or a whole request. */
export type Scorable = string | ScoreRequest;

const NO_OUTCOME = { code: "bad_response", detail: "a line of the answer has neither a result nor an error" };
const NO_SUCH_ITEM = { code: "bad_response", detail: "a line of the answer is about no item that was open" };

/** A line as it came: nothing is known of it yet. */
interface Line {
  index?: unknown;
  result?: unknown;
  error?: unknown;
}

export function requestOf(asked: Scorable): ScoreRequest {
  return typeof asked === "string" ? { prompt: asked } : asked;
}

/** Score any number of requests; yield items as they are done. No more than one call's worth is held. */
export async function* scoreBatch(
  transport: Transport,
  asked: Iterable<Scorable> | AsyncIterable<Scorable>,
  options: BatchOptions = {},
): AsyncGenerator<BatchItem> {
  let before = 0;
  for await (const some of cut(asked, options.batchSize ?? MOST_AT_ONCE)) {
    for await (const item of scoreSome(transport, some, options)) yield { ...item, index: before + item.index };
    before += some.length;
  }
}

async function* cut<T>(all: Iterable<T> | AsyncIterable<T>, size: number): AsyncGenerator<T[]> {
  if (!(Number.isInteger(size) && size >= 1 && size <= MOST_AT_ONCE)) {
    throw new RangeError(`batchSize must be a whole number from 1 to ${MOST_AT_ONCE}`);
  }
  let some: T[] = [];
  for await (const one of all) {
    if (some.push(one) < size) continue;
    yield some;
    some = [];
  }
  if (some.length) yield some;
}

/** Score what goes in one call. Where the connection breaks, those without a line are asked for again. */
async function* scoreSome(
  transport: Transport,
  asked: Scorable[],
  options: BatchOptions,
): AsyncGenerator<BatchItem> {
  const open = new Map(asked.map((one, index) => [index, requestOf(one)]));
  while (open.size) {
    const places = [...open.keys()];
    try {
      for await (const line of linesFor(transport, [...open.values()], options)) {
        const index = typeof line.index === "number" ? places[line.index] : undefined;
        if (index === undefined || !open.has(index)) throw new EigencalError(NO_SUCH_ITEM);
        const item = { index, ...outcomeOf(line) };
        open.delete(index);
        yield item;
      }
      if (open.size) throw new ConnectionError(`${open.size} items of a batch have no line`);
    } catch (error) {
      const broken = error instanceof ConnectionError && !(error instanceof TimeoutError);
      // Without a single line more, another attempt would be no better than those the transport has made.
      if (!broken || options.maxRetries === 0 || open.size === places.length) throw error;
    }
  }
}

function outcomeOf({ result, error }: Line): { result: Score } | { error: EigencalError } {
  if (isObject(result)) return { result: result as Score };
  if (isObject(error)) return { error: errorFrom(error) };
  throw new EigencalError(NO_OUTCOME);
}

async function* linesFor(
  transport: Transport,
  items: ScoreRequest[],
  options: BatchOptions,
): AsyncGenerator<Line> {
  const call = { ...options, timeoutMs: options.timeoutMs ?? LONG_MS, json: { items } };
  for await (const line of recordsOf(transport.pieces("POST /score/batch", call))) yield line;
}

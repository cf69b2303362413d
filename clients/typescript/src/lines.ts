// Streams of text, as they come.
import { ConnectionError, EigencalError } from "./errors.js";

/** Yield the lines of UTF-8 pieces, without their ends. */
export async function* linesOf(pieces: AsyncIterable<Uint8Array>): AsyncGenerator<string> {
  const decoder = new TextDecoder();
  let parts: string[] = []; // of a line whose end has not come: joined once, for it may be long
  for await (const piece of pieces) {
    const [first = "", ...others] = decoder.decode(piece, { stream: true }).split("\n");
    parts.push(first);
    for (const next of others) {
      yield parts.join("").replace(/\r$/, "");
      parts = [next];
    }
  }
  const rest = parts.join("") + decoder.decode();
  if (rest) yield rest;
}

/** Yield the object that each line is. Raises ConnectionError where one is cut off. */
export async function* recordsOf(pieces: AsyncIterable<Uint8Array>): AsyncGenerator<object> {
  for await (const line of linesOf(pieces)) if (line) yield recordOf(line);
}

/** Return the object that a line is. Raises ConnectionError where it is cut off, EigencalError where it is another value. */
export function recordOf(line: string): object {
  const value = parsed(line);
  if (isObject(value)) return value;
  throw new EigencalError({ code: "bad_response", detail: "a line of the answer is no object" });
}

export function isObject(value: unknown): value is object {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function parsed(line: string): unknown {
  try {
    return JSON.parse(line);
  } catch (cause) {
    throw new ConnectionError("a line of the answer is cut off", cause);
  }
}

/** Yield the data of server-sent events; comments and names of events are passed over. */
export async function* eventsOf(pieces: AsyncIterable<Uint8Array>): AsyncGenerator<string> {
  let data: string[] = [];
  for await (const line of linesOf(pieces)) {
    if (line.startsWith("data:")) data.push(line.slice(5).replace(/^ /, ""));
    else if (line === "" && data.length) {
      yield data.join("\n");
      data = [];
    }
  }
  // Without the empty line that ends it: whoever reads it finds whether it is whole.
  if (data.length) yield data.join("\n");
}

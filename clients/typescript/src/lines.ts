// Streams of text, as they come.
import { ConnectionError } from "./errors.js";

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

/** Yield the JSON of each line. Raises ConnectionError where one is cut off. */
export async function* recordsOf(pieces: AsyncIterable<Uint8Array>): AsyncGenerator<unknown> {
  for await (const line of linesOf(pieces)) if (line) yield recordOf(line);
}

function recordOf(line: string): unknown {
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
}

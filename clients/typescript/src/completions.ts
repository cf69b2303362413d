import { ConnectionError } from "./errors.js";
import { eventsOf, recordOf } from "./lines.js";
import { errorFrom } from "./problems.js";
import type { Transport } from "./transport.js";
import type { CallOptions, CompletionRequest } from "./types.js";

type Route = "POST /v1/chat/completions" | "POST /v1/completions";

/** Send a chat, or a text to complete; of a streamed one, return the chunks as they come. */
export function complete(
  transport: Transport,
  route: Route,
  request: CompletionRequest,
  options: CallOptions = {},
): Promise<unknown> | AsyncGenerator<unknown> {
  const call = { ...options, json: request };
  return request.stream ? chunks(transport, route, call) : transport.json(route, call);
}

async function* chunks(
  transport: Transport,
  route: Route,
  call: CallOptions & { json: CompletionRequest },
): AsyncGenerator<unknown> {
  for await (const data of eventsOf(transport.pieces(route, call))) {
    if (data === "[DONE]") return;
    const chunk = recordOf(data);
    if (Object.hasOwn(chunk, "error")) throw errorFrom(chunk);
    yield chunk;
  }
  throw new ConnectionError(`the stream of ${route} ended before its [DONE]: the answer may not be whole`);
}

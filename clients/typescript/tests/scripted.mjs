// A server on a real socket that answers as a test tells it to, and remembers what it was asked.
import { createServer } from "node:http";
import { once } from "node:events";
import { Eigencal } from "../dist/index.js";

/** Serve `answers`, one for each request and then the last again; `t` ends it. */
export async function scripted(t, ...answers) {
  const requests = [];
  const server = createServer(async (request, response) => {
    const chunks = [];
    for await (const chunk of request) chunks.push(chunk);
    const { method, url, headers } = request;
    requests.push({ method, url, headers, body: Buffer.concat(chunks).toString() });
    await answers[Math.min(requests.length, answers.length) - 1](response, request);
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  const baseUrl = `http://127.0.0.1:${server.address().port}`;
  return { baseUrl, requests, client: new Eigencal({ baseUrl }) };
}

export const json = (body, status = 200, headers = {}) => (response) =>
  response.writeHead(status, { "content-type": "application/json", ...headers }).end(JSON.stringify(body));

export const problem = (status, code, { retryable = true, headers = {}, ...more } = {}) =>
  json({ type: `urn:eigencal:error:${code}`, title: code, status, detail: `told ${code}`, code, retryable, ...more }, status, headers);

/** End the connection before anything is answered. */
export const drop = (response) => response.destroy();

/** Write these pieces, then end, or break off. */
export const stream = (pieces, { breakOff = false } = {}) => async (response) => {
  response.writeHead(200);
  for (const piece of pieces) await new Promise((written) => response.write(piece, written));
  if (breakOff) response.destroy();
  else response.end();
};

export const hang = () => {};

/** No wait between attempts. */
export const NOW = { "retry-after": "0" };

/** Return what an async iterable yields. */
export async function all(items) {
  const found = [];
  for await (const item of items) found.push(item);
  return found;
}

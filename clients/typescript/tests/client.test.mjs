// The client before scripted servers on real sockets.
import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer } from "node:http";
import { test } from "node:test";
import { Eigencal, EigencalError } from "../dist/index.js";

/** Serve `answers`, one for each request and then the last again. */
async function scripted(t, ...answers) {
  const requests = [];
  const server = createServer(async (request, response) => {
    const chunks = [];
    for await (const chunk of request) chunks.push(chunk);
    const { method, url, headers } = request;
    requests.push({ method, url, headers, body: Buffer.concat(chunks) });
    await answers[Math.min(requests.length, answers.length) - 1](response);
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  t.after(() => (server.closeAllConnections(), server.close()));
  const baseUrl = `http://127.0.0.1:${server.address().port}`;
  return { baseUrl, requests, client: new Eigencal({ baseUrl }) };
}

const json = (body, status = 200, headers = {}) => (response) => response.writeHead(status, headers).end(JSON.stringify(body));
const NOW = { "retry-after": "0" };
const problem = (status, code, retryable = true, headers = NOW) =>
  json({ code, detail: "Details.", status, retryable, request_id: "req_1" }, status, headers);
const drop = (response) => response.destroy();
const hang = () => {};
const stream = (pieces, end) => async (response) => {
  response.writeHead(200);
  for (const piece of pieces) await new Promise((written) => response.write(piece, written));
  end(response);
};
const OK = json({ lambda_max: 0.5 });

async function all(items) {
  const found = [];
  for await (const item of items) found.push(item);
  return found;
}

test("a prompt and a request are posted with the key", async (t) => {
  const { baseUrl, requests } = await scripted(t, OK);
  const client = new Eigencal({ baseUrl: `${baseUrl}/prefix/`, key: " k-1\n" });
  assert.equal((await client.score("p")).lambda_max, 0.5);
  await client.score({ prompt: "p", num_samples: "auto" });
  assert.deepEqual(requests.map(({ method, url }) => `${method} ${url}`), Array(2).fill("POST /prefix/score"));
  assert.deepEqual(requests.map(({ body }) => JSON.parse(body)), [{ prompt: "p" }, { prompt: "p", num_samples: "auto" }]);
  assert.equal(requests[0].headers.authorization, "Bearer k-1");
});

test("calls name their resources", async (t) => {
  const { client, requests } = await scripted(t, json([]));
  await client.getScore("scr_1");
  await client.calibrations();
  await client.activate("a/b");
  const asked = requests.map(({ method, url }) => `${method} ${url}`);
  assert.deepEqual(asked, ["GET /scores/scr_1", "GET /calibrations", "POST /calibrations/a%2Fb/activate"]);
});

test("batch yields the item of each line", async (t) => {
  const lines = ['{"index":1,"result":{"answer":"bé"}}\n{"in', 'dex":0,"error":{"code":"llm_error"}}'];
  const { client, requests } = await scripted(t, stream(lines, (response) => response.end()));
  const items = await all(client.batch(["a", { prompt: "b" }]));
  assert.deepEqual(items, [{ index: 1, result: { answer: "bé" } }, { index: 0, error: { code: "llm_error" } }]);
  assert.deepEqual(JSON.parse(requests[0].body), { items: [{ prompt: "a" }, { prompt: "b" }] });
});

for (const [how, end] of [["is broken", (response) => response.destroy()], ["ends early", (response) => response.end()]]) {
  test(`a batch that ${how} throws after its last item`, async (t) => {
    const { client, requests } = await scripted(t, stream(['{"index":0,"result":{}}\n'], end));
    const items = client.batch(["a", "b"]);
    assert.equal((await items.next()).value.index, 0);
    await assert.rejects(items.next(), { code: "connection_failed", retryable: true });
    assert.equal(requests.length, 1);
  });
}

test("leaving the loop closes the connection", { timeout: 60_000 }, async (t) => {
  let closed;
  const gone = new Promise((resolve) => (closed = resolve));
  const { client } = await scripted(t, (response) => {
    response.on("close", closed);
    response.writeHead(200).write('{"index":0,"result":{}}\n');
  });
  for await (const item of client.batch(["a", "b"])) if (item.index === 0) break;
  await gone;
});

test("rows are sent as JSON, files as a form", async (t) => {
  const { client, requests } = await scripted(t, json({ id: "job_1" }, 202));
  const rows = [{ prompt: "q", reference: "a" }];
  await client.calibrate(rows, { name: "n", num_samples: 3, timeoutMs: 60_000, idempotencyKey: "mine" });
  assert.equal(requests[0].headers["idempotency-key"], "mine");
  assert.deepEqual(JSON.parse(requests[0].body), { examples: rows, name: "n", num_samples: 3 });
  await client.calibrate(new Blob(["{}"]), { name: "n" });
  const form = await new Response(requests[1].body, { headers: requests[1].headers }).formData();
  assert.deepEqual([await form.get("file").text(), form.get("name")], ["{}", "n"]);
});

test("a retried calibration keeps its idempotency key", async (t) => {
  const { client, requests } = await scripted(t, drop, json({ id: "job_1" }, 202));
  await client.calibrate([]);
  await client.calibrate([]);
  const [first, again, other] = requests.map(({ headers }) => headers["idempotency-key"]);
  assert.match(first, /^[0-9a-f]{32}$/);
  assert.equal(first, again);
  assert.notEqual(first, other);
});

test("waitForJob polls until the job has succeeded", async (t) => {
  const states = ["queued", "running", "succeeded"].map((state) => ({ id: "job_1", state }));
  const { client, requests } = await scripted(t, ...states.map((job) => json(job)));
  const seen = [];
  const job = await client.waitForJob("job_1", { intervalMs: 1, onProgress: (now) => seen.push(now.state) });
  assert.equal(job.state, "succeeded");
  assert.deepEqual(seen, ["queued", "running", "succeeded"]);
  assert.equal(requests[2].url, "/jobs/job_1");
});

test("waitForJob throws the error of a failed job", async (t) => {
  const { client } = await scripted(t, json({ state: "failed", error: { code: "llm_error", detail: "d" } }), json({ state: "cancelled", error: null }));
  await assert.rejects(client.waitForJob("job_1"), { code: "llm_error", message: "llm_error: d" });
  await assert.rejects(client.waitForJob("job_1"), { code: "cancelled" });
});

test("a problem is an EigencalError", async (t) => {
  const { client, requests } = await scripted(t, problem(422, "invalid_request", false));
  await assert.rejects(client.score("x"), (error) => {
    assert.ok(error instanceof EigencalError);
    assert.deepEqual([error.code, error.status, error.retryable, error.requestId], ["invalid_request", 422, false, "req_1"]);
    return true;
  });
  assert.equal(requests.length, 1);
});

test("a response of a proxy gives an error with its status", async (t) => {
  const page = (response) => response.writeHead(502, { "x-request-id": "r" }).end("<html>");
  const { client } = await scripted(t, page, (response) => response.end("<html>"), json({ code: 7 }, 500));
  await assert.rejects(client.score("x"), { code: "http_502", status: 502, retryable: false, requestId: "r" });
  await assert.rejects(client.score("x"), { code: "bad_response" });
  await assert.rejects(client.score("x"), { code: "http_500" });
});

test("redirects are not followed", async (t) => {
  const elsewhere = await scripted(t, OK);
  const { client } = await scripted(t, (response) => response.writeHead(307, { location: elsewhere.baseUrl }).end());
  await assert.rejects(client.score("x"), { code: "http_307" });
  assert.equal(elsewhere.requests.length, 0);
});

for (const [name, failure] of [
  ["a failed connection", drop],
  ["429", problem(429, "rate_limited", false)],
  ["503", problem(503, "overloaded")],
]) {
  test(`${name} is retried`, async (t) => {
    const { client, requests } = await scripted(t, failure, OK);
    assert.equal((await client.score("x")).lambda_max, 0.5);
    assert.deepEqual(requests[0].body, requests[1].body);
  });
}

for (const failure of [problem(500, "internal"), problem(503, "no_probability", false), problem(503, "overloaded", true, { "retry-after": "3600" })]) {
  test("other errors and long waits are not retried", async (t) => {
    const { client, requests } = await scripted(t, failure);
    await assert.rejects(client.score("x"), EigencalError);
    assert.equal(requests.length, 1);
  });
}

test("retries end after maxRetries", async (t) => {
  const { client, requests } = await scripted(t, problem(503, "overloaded"));
  await assert.rejects(client.score("x", { maxRetries: 3 }), { code: "overloaded" });
  assert.equal(requests.length, 4);
});

test("a timeout is not retried", async (t) => {
  const { client, requests } = await scripted(t, hang);
  await assert.rejects(client.score("x", { timeoutMs: 500 }), { code: "timed_out", retryable: true });
  assert.ok(requests.length <= 1);
});

test("an aborted call rejects with the signal's reason", async (t) => {
  const reason = new Error("changed my mind");
  const { client, requests } = await scripted(t, hang);
  await assert.rejects(client.score("x", { signal: AbortSignal.abort(reason) }), reason);
  assert.equal(requests.length, 0);
  const during = new AbortController();
  const call = client.score("x", { signal: during.signal });
  setImmediate(() => during.abort(reason));
  await assert.rejects(call, reason);
  const busy = await scripted(t, problem(503, "overloaded", true, { "retry-after": "50" }));
  const between = new AbortController();
  const waiting = busy.client.score("x", { signal: between.signal });
  setTimeout(() => between.abort(reason), 100);
  await assert.rejects(waiting, reason);
});

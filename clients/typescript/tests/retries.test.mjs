import assert from "node:assert/strict";
import { test } from "node:test";
import { Eigencal } from "../dist/index.js";
import { waitBefore } from "../dist/retries.js";
import { ConnectionError, EigencalError } from "../dist/index.js";
import { drop, hang, json, NOW, problem, scripted } from "./scripted.mjs";

const OK = json({ lambda_max: 0.5 });

for (const [status, code] of [[429, "rate_limited"], [502, "llm_error"], [503, "overloaded"], [504, "deadline_exceeded"]]) {
  test(`${status} that may pass is asked again`, async (t) => {
    const { client, requests } = await scripted(t, problem(status, code, { headers: NOW }), OK);
    assert.equal((await client.score("x")).lambda_max, 0.5);
    assert.equal(requests.length, 2);
    assert.equal(requests[0].body, requests[1].body);
  });
}

test("429 always may pass", async (t) => {
  const { client, requests } = await scripted(t, problem(429, "rate_limited", { retryable: false, headers: NOW }), OK);
  await client.score("x");
  assert.equal(requests.length, 2);
});

for (const [status, code, retryable] of [[502, "llm_error", false], [503, "no_probability", false], [500, "internal", true], [422, "invalid_request", false]]) {
  test(`${status} ${code} (retryable: ${retryable}) is not`, async (t) => {
    const { client, requests } = await scripted(t, problem(status, code, { retryable, headers: NOW }));
    await assert.rejects(client.score("x"), { code });
    assert.equal(requests.length, 1);
  });
}

test("a connection that ends before the answer is made again", async (t) => {
  const { client, requests } = await scripted(t, drop, OK);
  await client.score("x");
  assert.equal(requests.length, 2);
});

test("it gives up after maxRetries, of the client or of the call", async (t) => {
  const { baseUrl, requests } = await scripted(t, problem(503, "overloaded", { headers: NOW }));
  const client = new Eigencal({ baseUrl, maxRetries: 3 });
  await assert.rejects(client.score("x"), { code: "overloaded", retryAfterMs: 0 });
  assert.equal(requests.length, 4);
  await assert.rejects(client.score("x", { maxRetries: 0 }), { code: "overloaded" });
  assert.equal(requests.length, 5);
});

test("what must not be done twice is not asked again where it may have been done", async (t) => {
  const { client, requests } = await scripted(t, drop);
  await assert.rejects(client.retryJob("job_1"), { name: "ConnectionError" });
  assert.equal(requests.length, 1);
});

test("nor is a key made twice", async (t) => {
  const { client, requests } = await scripted(t, drop);
  await assert.rejects(client.createKey({ name: "n", scope: "score" }), { name: "ConnectionError" });
  assert.equal(requests.length, 1);
});

test("... but where it was turned away it is", async (t) => {
  const { client, requests } = await scripted(t, problem(503, "store_unavailable", { headers: NOW }), json({ id: "job_1" }, 202));
  assert.equal((await client.retryJob("job_1")).id, "job_1");
  assert.equal(requests.length, 2);
});

test("a calibration asked for again has the same idempotency key, another call another", async (t) => {
  const { client, requests } = await scripted(t, drop, json({ id: "job_1" }, 202));
  await client.calibrate([]);
  await client.calibrate([]);
  const [first, again, other] = requests.map((request) => request.headers["idempotency-key"]);
  assert.match(first, /^[0-9a-f]{32}$/);
  assert.equal(first, again);
  assert.notEqual(first, other);
});

test("a timeout is told and not asked again", async (t) => {
  const { client, requests } = await scripted(t, hang);
  await assert.rejects(client.score("x", { timeoutMs: 2000 }), { name: "TimeoutError", code: "timed_out" });
  assert.equal(requests.length, 1);
});

test("so is one of the platform's own", async () => {
  let calls = 0;
  const fetch = async () => {
    calls += 1;
    throw new TypeError("fetch failed", { cause: { code: "UND_ERR_HEADERS_TIMEOUT" } });
  };
  await assert.rejects(new Eigencal({ fetch }).score("x"), { name: "TimeoutError" });
  assert.equal(calls, 1);
});

test("the time runs on while a body comes", async (t) => {
  const { client } = await scripted(t, (response) => response.writeHead(200).write("{"));
  await assert.rejects(client.score("x", { timeoutMs: 2000 }), { name: "TimeoutError" });
});

test("an aborted call rejects with the signal's reason: before, during, and between attempts", async (t) => {
  const reason = new Error("changed my mind");
  const { client, requests } = await scripted(t, hang);
  await assert.rejects(client.score("x", { signal: AbortSignal.abort(reason) }), reason);
  assert.equal(requests.length, 0);
  const during = new AbortController();
  const call = client.score("x", { signal: during.signal });
  setImmediate(() => during.abort(reason));
  await assert.rejects(call, reason);
  const later = await scripted(t, problem(503, "overloaded", { headers: { "retry-after": "50" } }));
  const between = new AbortController();
  const waiting = later.client.score("x", { signal: between.signal });
  setTimeout(() => between.abort(reason), 100);
  await assert.rejects(waiting, reason);
});

test("waits grow, follow Retry-After, and end where it asks for more than a minute", () => {
  const told = (retryAfterMs) => new EigencalError({ code: "overloaded", detail: "", status: 503, retryable: true, retryAfterMs });
  const waits = [0, 1, 2, 3, 9].map((attempt) => waitBefore(told(), attempt, false));
  [500, 1000, 2000, 4000, 8000].forEach((most, i) => assert.ok(waits[i] >= most / 2 && waits[i] <= most));
  assert.equal(waitBefore(told(7000), 0, true), 7000);
  assert.equal(waitBefore(told(61_000), 0, false), undefined);
  assert.equal(waitBefore(new ConnectionError("gone"), 0, true), undefined);
  assert.equal(waitBefore(new TypeError("ours"), 0, false), undefined);
});

test("ready asks once", async (t) => {
  const { client, requests } = await scripted(t, problem(503, "llm_unavailable", { headers: NOW }));
  await assert.rejects(client.ready(), { name: "LLMUnavailableError" });
  assert.equal(requests.length, 1);
});

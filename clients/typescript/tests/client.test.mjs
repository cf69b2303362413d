import assert from "node:assert/strict";
import { test } from "node:test";
import { inspect } from "node:util";
import { Eigencal } from "../dist/index.js";
import { all, json, scripted, stream } from "./scripted.mjs";

test("a key goes as a bearer key, and is not shown", async (t) => {
  const { baseUrl, requests } = await scripted(t, json({}));
  const client = new Eigencal({ baseUrl: `${baseUrl}/behind/a/proxy/`, key: "k-123" });
  await client.health({ headers: { Accept: "x/y" } });
  assert.equal(requests[0].url, "/behind/a/proxy/healthz");
  assert.equal(requests[0].headers.authorization, "Bearer k-123");
  assert.equal(requests[0].headers.accept, "x/y");
  assert.ok(!inspect(client, { depth: 9, showHidden: true }).includes("k-123"));
});

test("address and key come from the environment where they are left out", async (t) => {
  const { baseUrl, requests } = await scripted(t, json({}));
  t.after(() => ["EIGENCAL_URL", "EIGENCAL_KEY"].forEach((name) => delete process.env[name]));
  Object.assign(process.env, { EIGENCAL_URL: baseUrl, EIGENCAL_KEY: "from-env" });
  await new Eigencal().health();
  assert.equal(requests[0].headers.authorization, "Bearer from-env");
  await new Eigencal({ key: "" }).health(); // none, whatever the environment has
  assert.equal(requests[1].headers.authorization, undefined);
});

test("options that cannot be used are refused, and a key is not repeated", () => {
  const cases = [{ baseUrl: "/eigencal" }, { baseUrl: "ftp://x" }, { timeoutMs: 0 }, { maxRetries: -1 }, { maxRetries: NaN }];
  for (const options of cases) assert.throws(() => new Eigencal(options), TypeError);
  assert.throws(() => new Eigencal({ key: "secret\n" }), (error) => !error.message.includes("secret"));
});

test("another fetch may send", async () => {
  const asked = [];
  const fetch = async (url, init) => {
    asked.push([String(url), init.method]);
    return Response.json({ status: "ok" });
  };
  await new Eigencal({ baseUrl: "https://example.test", fetch }).health();
  assert.deepEqual(asked, [["https://example.test/healthz", "GET"]]);
});

test("what cannot be sent is the caller's mistake, not a failed connection", async (t) => {
  const { client, requests } = await scripted(t, json({}));
  await assert.rejects(client.health({ headers: { "x y": "z" } }), TypeError);
  await assert.rejects(client.score({ prompt: 1n }), TypeError);
  await assert.rejects(client.evaluate([], new Blob([])), TypeError);
  assert.equal(requests.length, 0);
});

test("an id cannot leave its place in the path", async (t) => {
  const { client, requests } = await scripted(t, json({}));
  await client.job("../calibrations?x=/");
  assert.equal(requests[0].url, "/jobs/..%2Fcalibrations%3Fx%3D%2F");
});

test("rows go as JSON, files as a form, options of the service with them and those of the call not", async (t) => {
  const { client, requests } = await scripted(t, json({ id: "job_1" }, 202));
  const rows = [{ prompt: "q", reference: "a" }];
  const options = { name: "n", num_samples: 3, timeoutMs: 5000, signal: new AbortController().signal };
  await client.calibrate(rows, { ...options, idempotencyKey: "mine" });
  assert.equal(requests[0].headers["idempotency-key"], "mine");
  assert.deepEqual(JSON.parse(requests[0].body), { examples: rows, name: "n", num_samples: 3 });
  await client.evaluate(new File(["{}"], "dev.csv"), new Blob(["[]"]), options);
  const form = await new Response(requests[1].body, { headers: requests[1].headers }).formData();
  assert.deepEqual([...form.keys()].sort(), ["dev", "name", "num_samples", "test"]);
  assert.deepEqual([form.get("dev").name, await form.get("test").text(), form.get("num_samples")], ["dev.csv", "[]", "3"]);
});

const told = (chunk) => `data: ${JSON.stringify(chunk)}\n\n`;

test("a streamed chat yields chunks until it is done; comments are signs of life", async (t) => {
  const pieces = [": alive\r\n\r\n", told({ id: 1 }), 'event: x\ndata: {"id":\ndata: 2}\n\n', "data: [DONE]\n\n", told({ id: 3 })];
  const { client, requests } = await scripted(t, stream(pieces));
  const chunks = await all(client.chat({ model: "m", messages: [], stream: true }));
  assert.deepEqual(chunks, [{ id: 1 }, { id: 2 }]);
  assert.deepEqual(JSON.parse(requests[0].body), { model: "m", messages: [], stream: true });
});

test("an error within a stream is raised", async (t) => {
  const pieces = [told({ id: 1 }), told({ error: { message: "gone", code: "llm_unavailable" } })];
  const { client } = await scripted(t, stream(pieces));
  const chunks = client.complete({ model: "m", prompt: "p", stream: true });
  assert.deepEqual((await chunks.next()).value, { id: 1 });
  await assert.rejects(chunks.next(), { name: "LLMUnavailableError", detail: "gone" });
});

const job = (state, more = {}) => ({ id: "job_1", state, done: 1, total: 2, finished_at: null, error: null, ...more });
const event = (state, more) => `event: job\r\ndata: ${JSON.stringify(job(state, more))}\r\n\r\n`;
const END = { finished_at: "2026-11-22T00:00:00Z" };

test("a job is waited for over a restart of the service", async (t) => {
  const { client } = await scripted(
    t,
    json(job("queued"), 202),
    stream([event("running")], { breakOff: true }),
    (response) => response.destroy(),
    stream([": ping\r\n\r\n", event("running", { done: 2 }), event("succeeded", { ...END, calibration_id: "cal_1" })]),
  );
  const started = await client.calibrate([]);
  const seen = [];
  const ended = await started.wait({ onProgress: (now) => seen.push([now.state, now.done]) });
  assert.deepEqual(seen, [["running", 1], ["running", 2], ["succeeded", 1]]);
  assert.equal(ended.calibration_id, "cal_1");
  assert.deepEqual({ ...started }, job("queued")); // as it was told, without `wait`
});

test("a job that fails is an error that tells it", async (t) => {
  const failed = job("failed", { ...END, error: { code: "llm_error", detail: "it said no" } });
  const { client } = await scripted(t, json(failed), stream([event("failed", failed)]));
  const waited = (await client.job("job_1")).wait();
  await assert.rejects(waited, { name: "JobFailedError", code: "llm_error", detail: "it said no", job: failed });
});

test("waiting ends when the service is away too long, when the job is not there, and when it is told to", async (t) => {
  const { client } = await scripted(t, json(job("running")), (response) => response.destroy());
  const found = await client.job("job_1");
  await assert.rejects(found.wait({ patienceMs: 0 }), { name: "ConnectionError" });
  const signal = AbortSignal.timeout(50);
  await assert.rejects(found.wait({ signal }), { name: "TimeoutError", code: DOMException.TIMEOUT_ERR });
  const other = await scripted(t, json(job("running")), json({ code: "not_found", detail: "no", retryable: false }, 404));
  await assert.rejects((await other.client.job("job_1")).wait(), { name: "NotFoundError" });
});

test("rows of a calibration come one by one", async (t) => {
  const { client } = await scripted(t, stream(['{"id":"1","pro', 'mpt":"a"}\n{"id":"2"}', "\n"]));
  assert.deepEqual(await all(client.calibrationRows("cal_1")), [{ id: "1", prompt: "a" }, { id: "2" }]);
});

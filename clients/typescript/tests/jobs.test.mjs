// Jobs that are waited for.
import assert from "node:assert/strict";
import { test } from "node:test";
import { json, scripted, stream } from "./scripted.mjs";

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

for (const [what, answer] of [["comments alone", stream([": hi\n\n"])], ["a proxy's page", stream(["<html>log in</html>"])]]) {
  test(`${what} in place of events is nothing heard: waiting ends`, { timeout: 60_000 }, async (t) => {
    const { client, requests } = await scripted(t, json(job("running")), answer);
    const found = await client.job("job_1");
    // Each further attempt comes a second later; a signal would end a wait that never does by itself.
    const waited = found.wait({ patienceMs: 500, signal: AbortSignal.timeout(20_000) });
    await assert.rejects(waited, { name: "ConnectionError", detail: /job_1 ended before the job did/ });
    assert.ok(requests.length <= 3, `asked ${requests.length} times`); // two times for events; once where that was slow
  });
}

test("a proxy that ends events in the middle, cleanly, is asked again", async (t) => {
  const half = event("succeeded", END).slice(0, 40);
  const { client, requests } = await scripted(
    t,
    json(job("running")),
    stream([event("running")]),
    stream([event("running"), half]),
    stream([event("succeeded", END)]),
  );
  assert.equal((await (await client.job("job_1")).wait()).state, "succeeded");
  assert.equal(requests.length, 4);
});

test("events without an end are told to those who read them, too", async (t) => {
  const { client } = await scripted(t, stream([event("running")]));
  const events = client.jobEvents("job_1");
  assert.equal((await events.next()).value.state, "running");
  await assert.rejects(events.next(), { name: "ConnectionError" });
});

test("a patience that is no number is refused", { timeout: 60_000 }, async (t) => {
  const { client, requests } = await scripted(t, json(job("running")));
  const found = await client.job("job_1");
  for (const patienceMs of [NaN, -1, "60"]) await assert.rejects(found.wait({ patienceMs }), { name: "TypeError", message: /^patienceMs must/ });
  assert.equal(requests.length, 1);
});

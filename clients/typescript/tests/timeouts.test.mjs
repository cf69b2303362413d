// How long is waited: what a timer takes for no time at all, and what is no time.
import assert from "node:assert/strict";
import { test } from "node:test";
import { Eigencal } from "../dist/index.js";
import { json, scripted } from "./scripted.mjs";

const later = (response) => setTimeout(() => json({ lambda_max: 0.5 })(response), 100);

for (const timeoutMs of [Infinity, 3e9, 2 ** 31]) {
  test(`${timeoutMs} ms are longer than an answer takes`, async (t) => {
    const { baseUrl, client } = await scripted(t, later);
    assert.equal((await client.score("x", { timeoutMs, maxRetries: 0 })).lambda_max, 0.5);
    assert.equal((await new Eigencal({ baseUrl, timeoutMs, maxRetries: 0 }).score("x")).lambda_max, 0.5);
  });
}

test("without a limit, a signal ends a call", async (t) => {
  const { client } = await scripted(t, () => {});
  await assert.rejects(client.score("x", { timeoutMs: Infinity, signal: AbortSignal.timeout(50) }), { code: DOMException.TIMEOUT_ERR });
});

test("what is no time, or no number of attempts, is refused before anything is sent", async (t) => {
  const { baseUrl, client, requests } = await scripted(t, later);
  for (const timeoutMs of [NaN, 0, -1, -Infinity, "5000"]) {
    const refused = { name: "TypeError", message: `timeoutMs must be a number from 1 on, not ${timeoutMs}` };
    assert.throws(() => new Eigencal({ baseUrl, timeoutMs }), refused);
    await assert.rejects(client.score("x", { timeoutMs }), refused);
    await assert.rejects(client.scoreBatch(["x"], { timeoutMs }).next(), refused);
  }
  for (const maxRetries of [NaN, -1]) await assert.rejects(client.score("x", { maxRetries }), /^TypeError: maxRetries must/);
  assert.equal(requests.length, 0);
});

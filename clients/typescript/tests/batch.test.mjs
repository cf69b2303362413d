import assert from "node:assert/strict";
import { test } from "node:test";
import { linesOf } from "../dist/lines.js";
import { all, drop, scripted, stream } from "./scripted.mjs";

/** Answer a batch, last item first; each result tells the prompt that it is of. */
const scored = (only = () => true, ending) => async (response, request) =>
  stream(request.items.map((item, index) => line(index, item)).filter(only).reverse(), ending)(response);
const line = (index, item) => `${JSON.stringify({ index, result: { answer: item.prompt } })}\n`;

/** The script, each request's items put where `scored` finds them. */
async function batches(t, ...answers) {
  const served = await scripted(t, ...answers.map((answer) => async (response, request) => {
    request.items = JSON.parse(served.requests.at(-1).body).items;
    await answer(response, request);
  }));
  return served;
}
const sizes = (served) => served.requests.map((request) => JSON.parse(request.body).items.length);
const prompts = (count) => Array.from({ length: count }, (_, i) => `question ${i}`);

test("any number of requests is cut into calls of 256, each item has its place in the whole", async (t) => {
  const served = await batches(t, scored());
  const items = await all(served.client.scoreBatch(prompts(600)));
  assert.deepEqual(sizes(served), [256, 256, 88]);
  assert.deepEqual(items.map((item) => item.index).sort((a, b) => a - b), [...prompts(600).keys()]);
  for (const { index, result } of items) assert.equal(result.answer, `question ${index}`);
  assert.equal(items[0].index, 255); // as lines come
});

test("an async iterable is read no further than the call needs", async (t) => {
  const served = await batches(t, scored());
  let read = 0;
  async function* questions() {
    for (const prompt of prompts(100)) yield { prompt, num_samples: ++read };
  }
  for await (const item of served.client.scoreBatch(questions(), { batchSize: 10 })) {
    assert.ok(read <= item.index - (item.index % 10) + 10);
  }
  assert.equal(read, 100);
});

test("nothing to score is no call", async (t) => {
  const served = await batches(t, scored());
  assert.deepEqual(await all(served.client.scoreBatch([])), []);
  assert.equal(served.requests.length, 0);
});

test("an item that failed is told by its error, and fails no other", async (t) => {
  const error = { code: "llm_error", status: 502, detail: "no", retryable: true, request_id: "r" };
  const bad = stream([line(1, { prompt: "b" }), `${JSON.stringify({ index: 0, error })}\n`]);
  const items = await all((await scripted(t, bad)).client.scoreBatch(["a", "b"]));
  assert.deepEqual(items.map((item) => item.index), [1, 0]);
  assert.equal(items[1].error.name, "LLMError");
  assert.deepEqual([items[1].error.code, items[1].error.retryable, items[1].error.requestId], ["llm_error", true, "r"]);
});

for (const [how, ending] of [["breaks off", { breakOff: true }], ["ends early", {}]]) {
  test(`where the connection ${how}, those without a line are asked for again`, async (t) => {
    const served = await batches(t, scored((_, i) => i >= 6, ending), scored((_, i) => i >= 4, ending), scored());
    const items = await all(served.client.scoreBatch(prompts(10)));
    assert.deepEqual(sizes(served), [10, 6, 4]);
    assert.equal(new Set(items.map((item) => item.index)).size, 10);
    for (const { index, result } of items) assert.equal(result.answer, `question ${index}`);
  });
}

test("a line that is cut off is asked for again", async (t) => {
  const whole = line(0, { prompt: "question 0" }) + line(1, { prompt: "question 1" });
  const served = await batches(t, stream([whole.slice(0, -9)]), scored());
  assert.deepEqual((await all(served.client.scoreBatch(prompts(2)))).map((item) => item.index), [0, 1]);
  assert.deepEqual(sizes(served), [2, 1]);
});

test("a line about an item that is not open is no answer", async (t) => {
  for (const index of [0, 7, -1, true, "1", "length", null, 0.5]) {
    const served = await scripted(t, stream([line(0, { prompt: "a" }), line(index, { prompt: "a" })]));
    await assert.rejects(all(served.client.scoreBatch(["a", "b"])), { code: "bad_response" });
  }
});

for (const line of ["null", "5", "[]", "{}", '{"index":0}', '{"index":0,"result":5}', '{"index":0,"error":null}']) {
  test(`${line} is no line of a batch`, async (t) => {
    const { client } = await scripted(t, stream([`${line}\n`]));
    await assert.rejects(all(client.scoreBatch(["a"])), { name: "EigencalError", code: "bad_response" });
  });
}

test("without a single line, or told not to, it is not asked again", async (t) => {
  const none = await batches(t, scored(() => false, {}));
  await assert.rejects(all(none.client.scoreBatch(prompts(3))), { name: "ConnectionError" });
  assert.equal(none.requests.length, 1);
  const once = await batches(t, scored((_, i) => i > 0, { breakOff: true }));
  await assert.rejects(all(once.client.scoreBatch(prompts(3), { maxRetries: 0 })), { name: "ConnectionError" });
  assert.equal(once.requests.length, 1);
  const dropped = await scripted(t, drop);
  await assert.rejects(all(dropped.client.scoreBatch(prompts(3), { maxRetries: 0 })), { name: "ConnectionError" });
});

test("a loop that is left ends the call, and closes what it reads from", { timeout: 60_000 }, async (t) => {
  let closed = false;
  let hungUp;
  const gone = new Promise((resolve) => (hungUp = resolve));
  const served = await scripted(t, (response) => {
    response.on("close", hungUp);
    response.writeHead(200).write(line(0, { prompt: "a" }));
  });
  function* questions() {
    try {
      while (true) yield "a";
    } finally {
      closed = true;
    }
  }
  for await (const item of served.client.scoreBatch(questions(), { batchSize: 2 })) {
    assert.equal(item.index, 0);
    break;
  }
  await gone;
  assert.ok(closed);
  assert.equal(served.requests.length, 1);
});

test("a caller who takes long is no silence of the service", async (t) => {
  const served = await scripted(t, stream([line(0, { prompt: "a" }), line(1, { prompt: "b" })]));
  const found = [];
  for await (const item of served.client.scoreBatch(["a", "b"], { timeoutMs: 2000, maxRetries: 0 })) {
    found.push(item.index);
    await new Promise((resolve) => setTimeout(resolve, 2500));
  }
  assert.deepEqual(found, [0, 1]);
});

test("silence in the middle is a timeout", async (t) => {
  const served = await scripted(t, (response) => response.writeHead(200).write(line(0, { prompt: "a" })));
  await assert.rejects(all(served.client.scoreBatch(["a", "b"], { timeoutMs: 2000 })), { name: "TimeoutError" });
  assert.equal(served.requests.length, 1);
});

test("a size that no call can have is refused", async (t) => {
  const served = await batches(t, scored());
  for (const batchSize of [0, 257, 1.5]) {
    await assert.rejects(all(served.client.scoreBatch(["a"], { batchSize })), RangeError);
  }
});

test("a line may come in pieces, cut within a character", async () => {
  const text = "北京 \u2028 🦉\r\n\nunfinished é";
  async function* bytes() {
    for (const byte of Buffer.from(text)) yield Uint8Array.of(byte);
  }
  assert.deepEqual(await all(linesOf(bytes())), ["北京 \u2028 🦉", "", "unfinished é"]);
});

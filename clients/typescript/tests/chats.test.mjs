// Streamed chats and texts.
import assert from "node:assert/strict";
import { test } from "node:test";
import { all, drop, scripted, stream } from "./scripted.mjs";

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

const HELLO = { choices: [{ delta: { content: "Eight minus" } }] };
const ENDS = {
  "without [DONE]": [told(HELLO)],
  "within a chunk": [told(HELLO), 'data: {"choi'],
  "with a page": ["<html>log in</html>"],
};
for (const [how, pieces] of Object.entries(ENDS)) {
  test(`a stream that ends ${how} is not whole`, async (t) => {
    const { client, requests } = await scripted(t, stream(pieces));
    const seen = [];
    const read = async () => {
      for await (const chunk of client.chat({ model: "m", messages: [], stream: true })) seen.push(chunk);
    };
    await assert.rejects(read(), { name: "ConnectionError", retryable: true });
    assert.deepEqual(seen, pieces[0].startsWith("data") ? [HELLO] : []);
    assert.equal(requests.length, 1); // what has begun is not repeated: the caller has read some of it
  });
}

test("a [DONE] without the empty line after it is one", async (t) => {
  const { client } = await scripted(t, stream([told(HELLO), "data: [DONE]"]));
  assert.deepEqual(await all(client.chat({ model: "m", messages: [], stream: true })), [HELLO]);
});

test("a chunk that is no object is none", async (t) => {
  const { client } = await scripted(t, stream(["data: null\n\n"]));
  await assert.rejects(all(client.chat({ model: "m", messages: [], stream: true })), { code: "bad_response" });
});

test("a stream that was not begun is asked for again", async (t) => {
  const { client, requests } = await scripted(t, drop, stream([told(HELLO), "data: [DONE]\n\n"]));
  assert.deepEqual(await all(client.chat({ model: "m", messages: [], stream: true })), [HELLO]);
  assert.equal(requests.length, 2);
});

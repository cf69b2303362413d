// Requests go where the caller sends them, and nowhere else.
import assert from "node:assert/strict";
import { test } from "node:test";
import { Eigencal } from "../dist/index.js";
import { json, scripted } from "./scripted.mjs";

for (const status of [301, 302, 303, 307, 308]) {
  test(`a ${status} is told, not followed`, async (t) => {
    const elsewhere = await scripted(t, json({ lambda_max: 0.5 }));
    const location = `${elsewhere.baseUrl.replace("127.0.0.1", "localhost")}/taken`;
    const { client, baseUrl, requests } = await scripted(t, (response) => response.writeHead(status, { location }).end());
    await assert.rejects(client.score("a secret prompt"), (error) => {
      assert.deepEqual([error.name, error.code, error.status, error.retryable], ["EigencalError", "redirected", status, false]);
      assert.ok(error.detail.startsWith(`${baseUrl}/score redirects to ${location};`), error.detail);
      return true;
    });
    assert.equal(requests.length, 1);
    assert.equal(elsewhere.requests.length, 0);
  });
}

test("where to is told in full, and what is no address as it came", async (t) => {
  const to = (location) => (response) => response.writeHead(307, location).end();
  const { client, baseUrl } = await scripted(t, to({ location: "/v2/score" }), to({ location: "http://[" }), to({}));
  await assert.rejects(client.score("x"), { detail: new RegExp(` to ${baseUrl}/v2/score;`) });
  await assert.rejects(client.score("x"), { detail: / to "http:\/\/\[";/ });
  await assert.rejects(client.score("x"), { code: "redirected" });
});

test("a 304, which leads nowhere, is another error", async (t) => {
  const { client } = await scripted(t, (response) => response.writeHead(304).end());
  await assert.rejects(client.health(), { code: "http_304" });
});

test("a browser, which tells nothing of a redirect, is said to", async () => {
  // As the Fetch standard has it; test_typescript_browser.py has a real one.
  const answer = Object.defineProperties(Response.error(), { type: { value: "opaqueredirect" } });
  const client = new Eigencal({ baseUrl: "http://service.test", fetch: async () => answer });
  await assert.rejects(client.health(), { code: "redirected", status: undefined, detail: /an address that the browser does not tell/ });
});

test("an id cannot leave its place in the path", async (t) => {
  const { client, requests } = await scripted(t, json({}));
  await client.job("../calibrations?x=/");
  assert.equal(requests[0].url, "/jobs/..%2Fcalibrations%3Fx%3D%2F");
});

test("an id that would be another path is refused", async (t) => {
  const { client, requests } = await scripted(t, json({}));
  for (const id of ["", ".", "..", undefined, null, 5]) {
    await assert.rejects(client.cancelJob(id), { name: "TypeError", message: /^an id must be text/ });
    await assert.rejects(client.forgetRows(id), TypeError);
    await assert.rejects(client.jobEvents(id).next(), TypeError);
  }
  assert.equal(requests.length, 0);
  await client.cancelJob("...");
  assert.equal(requests[0].url, "/jobs/...");
});

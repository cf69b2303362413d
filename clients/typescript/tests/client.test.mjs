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
  assert.equal(requests.length, 0);
});

test("rows go as JSON, files as a form, options of the service with them and those of the call not", async (t) => {
  const { client, requests } = await scripted(t, json({ id: "job_1" }, 202));
  const rows = [{ prompt: "q", reference: "a" }];
  const options = { name: "n", num_samples: 3, timeoutMs: 5000, signal: new AbortController().signal };
  await client.calibrate(rows, { ...options, idempotencyKey: "mine" });
  assert.equal(requests[0].headers["idempotency-key"], "mine");
  assert.deepEqual(JSON.parse(requests[0].body), { examples: rows, name: "n", num_samples: 3 });
  await client.calibrate(new File(["{}"], "dev.csv"), options);
  const form = await new Response(requests[1].body, { headers: requests[1].headers }).formData();
  assert.deepEqual([...form.keys()].sort(), ["file", "name", "num_samples"]);
  assert.deepEqual([form.get("file").name, await form.get("file").text(), form.get("num_samples")], ["dev.csv", "{}", "3"]);
});

test("rows of a calibration come one by one", async (t) => {
  const { client } = await scripted(t, stream(['{"id":"1","pro', 'mpt":"a"}\n{"id":"2"}', "\n"]));
  assert.deepEqual(await all(client.calibrationRows("cal_1")), [{ id: "1", prompt: "a" }, { id: "2" }]);
});

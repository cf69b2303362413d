// Every operation of the contract is reached by a method of the client, or stands here with the reason why not.
import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { test } from "node:test";
import { Eigencal } from "../dist/index.js";

const contract = JSON.parse(await readFile(new URL("../../openapi.json", import.meta.url), "utf8"));
const NO_METHOD = {
  "GET /": "a list of links for people; the client knows the routes",
  "GET /health": "GET /healthz under the name that gateways look for",
  "POST /v1/responses": "OpenAI's client calls it",
  "GET /v1/responses/{response_id}": "OpenAI's client calls it",
  "DELETE /v1/responses/{response_id}": "OpenAI's client calls it",
  "POST /v1/responses/{response_id}/cancel": "OpenAI's client calls it",
  "GET /v1/responses/{response_id}/input_items": "OpenAI's client calls it",
};
const CALLS = {
  score: ["a prompt"],
  scoreBatch: [["a prompt"]],
  getScore: ["scr_1"],
  verify: [{ question: "q", answer: "a", threshold: 0.5 }],
  chat: [{ model: "m", messages: [] }],
  complete: [{ model: "m", prompt: "p" }],
  models: [],
  calibrate: [[]],
  jobs: [],
  job: ["job_1"],
  jobEvents: ["job_1"],
  cancelJob: ["job_1"],
  retryJob: ["job_1"],
  calibrations: [],
  activeCalibrations: [],
  activations: [],
  correctRows: ["cal_1", { rows: [{ line: 1, correct: false }] }],
  calibration: ["cal_1"],
  activate: ["cal_1"],
  report: ["cal_1"],
  reportPage: ["cal_1"],
  calibrationRows: ["cal_1"],
  forgetRows: ["cal_1"],
  keys: [],
  createKey: [{ name: "n", scope: "score" }],
  revokeKey: ["key_1"],
  health: [],
  ready: [],
  metrics: [],
};

const operations = Object.entries(contract.paths).flatMap(([path, entry]) =>
  Object.keys(entry)
    .filter((method) => ["get", "post", "put", "patch", "delete"].includes(method))
    .map((method) => `${method.toUpperCase()} ${path}`),
);

/** Return the operation that a request is: the template with the fewest parameters that fits. */
function operationOf(method, url) {
  const { pathname } = new URL(url);
  const fits = operations.filter((one) => {
    const [verb, template] = one.split(" ");
    const pattern = template.replace(/[.*+?^$|()[\]\\]/g, "\\$&").replace(/\{\w+\}/g, "[^/]+");
    return verb === method && new RegExp(`^${pattern}$`).test(pathname);
  });
  return fits.sort((a, b) => a.split("{").length - b.split("{").length)[0] ?? `${method} ${pathname}`;
}

test("every operation of the contract is reached, or there is a reason", async () => {
  const reached = new Set();
  const fetch = async (url, { method }) => {
    reached.add(operationOf(method, url));
    return Response.json([]);
  };
  const client = new Eigencal({ baseUrl: "http://service.test", fetch, maxRetries: 0 });
  for (const [name, given] of Object.entries(CALLS)) {
    const before = reached.size;
    const result = client[name](...given);
    // Only what was asked for counts here; of an empty answer some make an error.
    await (Symbol.asyncIterator in result ? result.next() : result).catch(() => {});
    assert.ok(reached.size > before || name.endsWith("Page"), `${name} asks for nothing of its own`);
  }
  assert.deepEqual([...reached, ...Object.keys(NO_METHOD)].sort(), operations.sort());
});

test("every method of the client is among those calls", () => {
  const methods = Object.getOwnPropertyNames(Eigencal.prototype).filter((name) => name !== "constructor");
  assert.deepEqual(methods.sort(), Object.keys(CALLS).sort());
});

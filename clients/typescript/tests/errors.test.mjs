import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { test } from "node:test";
import * as eigencal from "../dist/index.js";
import { BY_CODE, waitOf } from "../dist/problems.js";
import { drop, json, NOW, problem, scripted } from "./scripted.mjs";

const CASES = [
  [422, "invalid_request", "InvalidRequestError"],
  [422, "too_few_samples", "TooFewSamplesError", "InvalidRequestError"],
  [401, "bad_key", "AuthenticationError"],
  [403, "scope_required", "ScopeRequiredError"],
  [404, "model_not_found", "ModelNotFoundError", "NotFoundError"],
  [409, "conflict", "ConflictError"],
  [502, "llm_bad_response", "LLMBadResponseError", "LLMError"],
  [502, "no_usable_answers", "NoUsableAnswersError"],
  [503, "store_unavailable", "StoreUnavailableError", "UnavailableError"],
  [504, "deadline_exceeded", "DeadlineExceededError"],
  [500, "internal", "InternalError"],
];
for (const [status, code, ...classes] of CASES) {
  test(`${code} is a ${classes.join(" and a ")}`, async (t) => {
    const { client } = await scripted(t, problem(status, code, { retryable: false, request_id: "req-1" }));
    await assert.rejects(client.score("x"), (error) => {
      for (const name of [...classes, "EigencalError"]) assert.ok(error instanceof eigencal[name], name);
      const { name, status: told, code: kind, detail, requestId, retryable } = error;
      assert.deepEqual([name, told, kind, detail, requestId, retryable], [classes[0], status, code, `told ${code}`, "req-1", false]);
      assert.equal(error.message, `${code}: told ${code} (request req-1)`);
      return true;
    });
  });
}

test("what is wrong with a request, and where, is told", async (t) => {
  const errors = [{ loc: ["body", "num_samples"], msg: "too few" }];
  const { client } = await scripted(t, problem(422, "invalid_request", { errors, retryable: false }));
  await assert.rejects(client.score({ prompt: "x", num_samples: 0 }), (error) => {
    assert.deepEqual(error.errors, errors);
    return true;
  });
});

test("members of a problem's own are kept", async (t) => {
  const { client } = await scripted(t, problem(413, "body_too_large", { limit_bytes: 7, retryable: false }));
  await assert.rejects(client.score("x"), (error) => {
    assert.ok(error instanceof eigencal.BodyTooLargeError);
    assert.equal(error.problem.limit_bytes, 7);
    return true;
  });
});

test("a proxy's page is told by its status", async (t) => {
  const { client } = await scripted(t, (response) => response.writeHead(404, { "x-request-id": "p" }).end("<h1>no</h1>"));
  await assert.rejects(client.job("job_1"), { name: "NotFoundError", code: "http_404", requestId: "p", status: 404 });
});

const FOREIGN = [{ status: "error", message: "x" }, { code: { a: 1 } }, { detail: [{ a: 1 }], code: 5 }, { retryable: "no" }, { errors: 5 }, { error: null }, [1], "x", null];
for (const body of FOREIGN) {
  test(`503 with ${JSON.stringify(body)}, which is not of ours, may pass`, async (t) => {
    const { client, requests } = await scripted(t, json(body, 503, NOW));
    await assert.rejects(client.score("x", { maxRetries: 1 }), (error) => {
      const { name, code, status, retryable, errors } = error;
      assert.deepEqual([name, code, status, retryable, errors], ["UnavailableError", "http_503", 503, true, []]);
      assert.match(error.detail, /^the answer has status 503/);
      return true;
    });
    assert.equal(requests.length, 2);
  });
}

test("the status of an answer is that of its first line", async (t) => {
  const { client } = await scripted(t, json({ status: 200, code: "internal", detail: "no" }, 500));
  await assert.rejects(client.score("x"), { status: 500 });
});

test("where no answer comes from is told", async (t) => {
  const { client, baseUrl } = await scripted(t, drop);
  await assert.rejects(client.jobs({ maxRetries: 0, limit: 3 }), { name: "ConnectionError", detail: new RegExp(`^${baseUrl}/jobs.limit=3 cannot be reached`) });
  const silent = await scripted(t, () => {});
  await assert.rejects(silent.client.health({ timeoutMs: 20 }), { name: "TimeoutError", detail: `nothing came from ${silent.baseUrl}/healthz for 20 ms` });
});

test("an error in OpenAI's shape is read, too", async (t) => {
  const error = { message: "The model is not there.", type: "NotFoundError", code: "model_not_found" };
  const { client } = await scripted(t, json({ error }, 404));
  await assert.rejects(client.models(), { name: "ModelNotFoundError", detail: error.message, status: 404 });
});

test("an answer that is no JSON is an error", async (t) => {
  const { client } = await scripted(t, (response) => response.end("hello"));
  await assert.rejects(client.health(), { name: "EigencalError", code: "bad_response" });
});

test("Retry-After is seconds or a date", () => {
  assert.equal(waitOf("1.5"), 1500);
  const ms = waitOf(new Date(Date.now() + 10_000).toUTCString());
  assert.ok(ms > 8_000 && ms <= 10_000, String(ms));
  assert.deepEqual([waitOf("soon"), waitOf(""), waitOf(null), waitOf("Thu, 01 Jan 1970 00:00:00 GMT")], [undefined, undefined, undefined, 0]);
});

test("the tree that the source draws is the tree of what is exported", async () => {
  const source = await readFile(new URL("../src/errors.ts", import.meta.url), "utf8");
  const drawn = source.split("*/")[1].matchAll(/^ \* {5}([ │├└─]*)(\w+Error)\b/gm);
  const above = [Error];
  for (const [, lines, name] of drawn) {
    const depth = lines.length / 4;
    assert.equal(Object.getPrototypeOf(eigencal[name]), above[depth], name);
    above[depth + 1] = eigencal[name];
    above.seen = (above.seen ?? new Set()).add(name);
  }
  const exported = Object.keys(eigencal).filter((name) => name.endsWith("Error"));
  assert.deepEqual([...above.seen].sort(), exported.sort());
  for (const kind of Object.values(BY_CODE)) assert.equal(eigencal[kind.name], kind);
});

test("a code is no property of every object", async (t) => {
  const { client } = await scripted(t, problem(400, "constructor", { retryable: false, headers: NOW }));
  await assert.rejects(client.score("x"), { name: "InvalidRequestError", code: "constructor" });
});

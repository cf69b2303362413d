// Against a running service: one that scores with a key, and one without keys that has been calibrated.
import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { test } from "node:test";
import { Eigencal } from "../dist/index.js";
import { all } from "./scripted.mjs";

const client = new Eigencal(); // EIGENCAL_URL, EIGENCAL_KEY
const admin = new Eigencal({ baseUrl: process.env.CALIBRATED_URL, key: "" });
const rows = JSON.parse(await readFile(process.env.ROWS, "utf8"));
const QUESTION = "What is the capital of Germany?";
const CHAT = { messages: [{ role: "user", content: QUESTION }] };

test("a score, and the same by its id", async () => {
  const score = await client.score({ prompt: QUESTION, return: ["samples", "spectrum"] });
  assert.equal(score.answer, "Berlin");
  assert.ok(score.lambda_max > 0 && score.lambda_max < 1 && score.entropy > 0);
  assert.equal(score.samples.length, score.num_samples);
  const kept = await client.getScore(score.id);
  assert.deepEqual([kept.status, kept.lambda_max], ["scored", score.lambda_max]);
});

test("a batch of several calls", async () => {
  const items = await all(client.scoreBatch(Array.from({ length: 300 }, () => ({ samples: ["a", "a", "b"] }))));
  assert.deepEqual(items.map((item) => item.index).sort((a, b) => a - b), [...Array(300).keys()]);
  assert.ok(items.every((item) => item.result.num_samples === 3));
});

test("a bad item of a batch", async () => {
  const items = await all(client.scoreBatch([QUESTION, { prompt: QUESTION, num_samples: 0 }]));
  const [good, bad] = items.sort((a, b) => a.index - b.index);
  assert.equal(good.result.answer, "Berlin");
  assert.equal(bad.error.name, "InvalidRequestError");
  assert.ok(bad.error.requestId);
});

test("a chat in one piece and streamed, a text, the models", async () => {
  const model = (await client.models()).data[0].id;
  const whole = await client.chat({ model, ...CHAT, eigencal: { num_samples: 4 } });
  assert.equal(whole.choices[0].message.content, "Berlin");
  assert.equal(whole.uncertainty.status, "scored");
  const chunks = await all(client.chat({ model, ...CHAT, stream: true }));
  assert.equal(chunks.map((chunk) => chunk.choices[0].delta.content ?? "").join(""), "Berlin");
  assert.equal(chunks.filter((chunk) => chunk.uncertainty)[0].uncertainty.status, "scored");
  const off = await client.chat({ model, ...CHAT }, { headers: { "X-Eigencal": "off" } });
  assert.equal(off.uncertainty, undefined);
  assert.equal((await client.complete({ model, prompt: QUESTION })).choices[0].text, "Berlin");
});

test("claims of a score, and what of a chat to doubt", async () => {
  const samples = ["It is old. The tower is 330 m high.", "The tower is new. It is old.", "It is old."];
  const { answer, claims } = await client.score({ samples, candidate: samples[0], claims: true, calibration: "none" });
  assert.ok(answer);
  assert.deepEqual(claims.map((claim) => samples[0].slice(claim.start, claim.end)), ["It is old.", "The tower is 330 m high."]);
  assert.deepEqual(claims.map((claim) => [claim.support.agree, claim.doubtful]), [[3, false], [1, false]]);
  const model = (await client.models()).data[0].id;
  const asked = { model, ...CHAT, eigencal: { claims: true, mark: true } };
  const whole = await client.chat(asked);
  assert.deepEqual(whole.uncertainty.claims.map((claim) => claim.text), ["Berlin"]);
  assert.ok(Array.isArray(whole.uncertainty.marks));
  const [last] = (await all(client.chat({ ...asked, stream: true }))).filter((chunk) => chunk.uncertainty);
  assert.ok(Array.isArray(last.uncertainty.marks));
});

test("errors as the service tells them", async () => {
  const stranger = new Eigencal({ key: "wrong" });
  await assert.rejects(stranger.score(QUESTION), (error) => {
    assert.deepEqual([error.name, error.code, error.status], ["AuthenticationError", "bad_key", 401]);
    assert.ok(error.requestId);
    return true;
  });
  await assert.rejects(stranger.models(), { name: "AuthenticationError" }); // in OpenAI's shape
  await assert.rejects(client.score({ prompt: QUESTION, model: "other" }), { name: "ModelNotFoundError", status: 404 });
  await assert.rejects(client.score({ samples: [] }), { name: "TooFewSamplesError" });
  await assert.rejects(admin.job("job_00000000000000000000000000"), { name: "NotFoundError" });
  await assert.rejects(admin.calibrate([{ prompt: "q" }]), (error) => {
    assert.equal(error.name, "InvalidDevDataError");
    assert.ok(error.errors[0].msg);
    return true;
  });
  const id = await client.score(QUESTION, { headers: { "X-Request-ID": "mine-1" }, signal: AbortSignal.abort() }).catch((e) => e.name);
  assert.equal(id, "AbortError");
  await assert.rejects(stranger.score(QUESTION, { headers: { "X-Request-ID": "mine-1" } }), { requestId: "mine-1" });
});

test("a calibration from its rows to its end", async () => {
  const stages = new Set();
  const idempotencyKey = `live-${Date.now()}`;
  const job = await admin.calibrate(rows, { name: "from node", activate: "always", idempotencyKey });
  assert.equal((await admin.calibrate(rows, { name: "from node", activate: "always", idempotencyKey })).id, job.id);
  const ended = await job.wait({ onProgress: (now) => stages.add(now.state) });
  assert.ok(stages.has("succeeded"));
  const id = ended.calibration_id;
  assert.equal((await admin.calibration(id)).name, "from node");
  assert.ok((await admin.calibrations()).some((one) => one.id === id));
  assert.ok((await admin.activeCalibrations()).some((one) => one.id === id));
  assert.equal((await admin.activate(id)).active, true);
  assert.ok(Object.keys(await admin.report(id)).length);
  assert.match(await admin.reportPage(id), /^<!doctype html>/i);
  assert.equal((await all(admin.calibrationRows(id))).length, rows.length);
  await assert.rejects(admin.cancelJob(job.id), { name: "ConflictError" });
  await assert.rejects(admin.retryJob(job.id), { name: "ConflictError" });
  assert.equal((await admin.jobs({ limit: 1 })).length, 1);
  const verified = await admin.verify({ question: "question 1000", answer: "Paris", threshold: 0.5 });
  assert.ok(verified.confidence > 0.5);
  await admin.forgetRows(id);
  assert.equal((await admin.calibration(id)).data_kept, false);
});

test("a file of rows, cancelled", async () => {
  const file = new Blob([rows.map((row) => JSON.stringify(row)).join("\n")]);
  const job = await admin.calibrate(file, { name: "to be cancelled", activate: "never" });
  assert.equal(job.name, "to be cancelled");
  const state = await admin.cancelJob(job.id).then((one) => one.state, (error) => error.code);
  assert.ok(["cancelled", "conflict"].includes(state)); // it may have been quicker
});

test("health, readiness, metrics", async () => {
  assert.equal((await client.health()).status, "ok");
  assert.equal((await client.ready()).parts.llm, "ok");
  assert.match(await client.metrics(), /^# HELP/m);
});

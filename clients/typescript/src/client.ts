import { type BatchOptions, requestOf, type Scorable, scoreBatch } from "./batch.js";
import { complete } from "./completions.js";
import type { Answer } from "./contract.js";
import { type Job, jobEvents, jobFrom } from "./jobs.js";
import { recordsOf } from "./lines.js";
import { type EigencalOptions, settingsOf } from "./options.js";
import { Transport } from "./transport.js";
import type * as types from "./types.js";
import type { CallOptions } from "./types.js";
import { type DevData, type SubmitOptions, upload } from "./uploads.js";

const PAGE = { accept: "text/html" };

/** A client of one service. It holds nothing open: there is nothing to close. */
export class Eigencal {
  readonly #transport: Transport;

  constructor(options: EigencalOptions = {}) {
    this.#transport = new Transport(settingsOf(options));
  }

  /** Score a prompt, or a whole request. `lambda_max` and `entropy` are calibrated where `calibrated` says so. */
  async score(request: Scorable, options: CallOptions = {}): Promise<types.Score> {
    return this.#transport.json("POST /score", { ...options, json: requestOf(request) });
  }

  /**
   * Score any number of requests, in calls of up to 256; yield items in the order in which they are done.
   *
   * One that fails has an `error` and fails no other. Leaving the loop cancels what is under way.
   */
  scoreBatch(
    requests: Iterable<Scorable> | AsyncIterable<Scorable>,
    options: BatchOptions = {},
  ): AsyncGenerator<types.BatchItem, void, undefined> {
    return scoreBatch(this.#transport, requests, options);
  }

  /** Return a score by its id, for an hour. Raises NotFoundError. */
  async getScore(id: string, options: CallOptions = {}): Promise<types.KeptScore> {
    return (await this.#transport.json("GET /scores/{score_id}", { ...options, ids: [id] })) as types.KeptScore;
  }

  /** Judge an answer to a question. Raises NoProbabilityError without a calibration that knows right from wrong. */
  async verify(request: types.VerifyRequest, options: CallOptions = {}): Promise<types.Verified> {
    return this.#transport.json("POST /verify", { ...options, json: request });
  }

  /** Send a chat through the drop-in; with `stream: true` it yields the chunks as they come. */
  chat(
    request: types.ChatRequest & { stream: true },
    options?: CallOptions,
  ): AsyncGenerator<types.ChatChunk, void, undefined>;
  chat(request: types.ChatRequest & { stream?: false }, options?: CallOptions): Promise<types.ChatCompletion>;
  chat(request: types.ChatRequest, options?: CallOptions): unknown {
    return complete(this.#transport, "POST /v1/chat/completions", request, options);
  }

  /** Have a text completed through the drop-in; `stream` as for `chat`. */
  complete(
    request: types.TextRequest & { stream: true },
    options?: CallOptions,
  ): AsyncGenerator<types.TextCompletion, void, undefined>;
  complete(request: types.TextRequest & { stream?: false }, options?: CallOptions): Promise<types.TextCompletion>;
  complete(request: types.TextRequest, options?: CallOptions): unknown {
    return complete(this.#transport, "POST /v1/completions", request, options);
  }

  /** Return the models of the LLM server. */
  async models(options: CallOptions = {}): Promise<types.Models> {
    return (await this.#transport.json("GET /v1/models", options)) as types.Models;
  }

  /** Fit a calibration on labelled rows, or on a file of them. Raises InvalidDevDataError. */
  async calibrate(data: DevData, options: types.CalibrateOptions & SubmitOptions = {}): Promise<Job> {
    const call =
      data instanceof Blob ? upload({ file: data }, {}, options) : upload({}, { examples: data }, options);
    return jobFrom(this.#transport, await this.#transport.json("POST /calibrate", call));
  }

  /** Return the latest jobs, latest first: at most `limit`, 100 without it. */
  async jobs(options: CallOptions & { limit?: number | undefined } = {}): Promise<Job[]> {
    const { limit, ...call } = options;
    const found = await this.#transport.json("GET /jobs", { ...call, query: { limit } });
    return found.map((state) => jobFrom(this.#transport, state));
  }

  /** Return a job. */
  async job(id: string, options: CallOptions = {}): Promise<Job> {
    return jobFrom(this.#transport, await this.#transport.json("GET /jobs/{job_id}", { ...options, ids: [id] }));
  }

  /** Yield a job now and whenever it changes, until it ends; see also `wait` of a job. */
  jobEvents(id: string, options: CallOptions = {}): AsyncGenerator<types.JobState, void, undefined> {
    return jobEvents(this.#transport, id, options);
  }

  /** Cancel a job, or give up one that has failed, and forget its rows. Raises ConflictError once it succeeded. */
  async cancelJob(id: string, options: CallOptions = {}): Promise<Job> {
    const state = await this.#transport.json("DELETE /jobs/{job_id}", { ...options, ids: [id] });
    return jobFrom(this.#transport, state);
  }

  /** Go on with a job that failed, with the answers it has. Raises ConflictError where it has not failed. */
  async retryJob(id: string, options: CallOptions = {}): Promise<Job> {
    // Made again, it would be told that the job no longer is one that failed.
    const call = { ...options, ids: [id], once: true };
    return jobFrom(this.#transport, await this.#transport.json("POST /jobs/{job_id}/retry", call));
  }

  /** Return all calibrations, latest first. */
  async calibrations(options: CallOptions = {}): Promise<types.Calibration[]> {
    return this.#transport.json("GET /calibrations", options);
  }

  /** Return the active calibrations: one for each fingerprint, the service's own set-up first. */
  async activeCalibrations(options: CallOptions = {}): Promise<types.Calibration[]> {
    return this.#transport.json("GET /calibrations/active", options);
  }

  /** Return every activation of a calibration, newest first: what was in force when, by whom, why. */
  async activations(options: CallOptions = {}): Promise<types.Activation[]> {
    return this.#transport.json("GET /calibrations/activations", options);
  }

  /** Start a job that calibrates on the same rows and answers, with corrected verdicts. */
  async correctRows(id: string, corrections: types.Corrections, options: CallOptions = {}): Promise<Job> {
    // Made again, it would leave two jobs.
    const call = { ...options, ids: [id], json: corrections, once: true };
    return jobFrom(this.#transport, await this.#transport.json("PATCH /calibrations/{calibration_id}/rows", call));
  }

  /** Return a calibration. */
  async calibration(id: string, options: CallOptions = {}): Promise<types.Calibration> {
    return this.#transport.json("GET /calibrations/{calibration_id}", { ...options, ids: [id] });
  }

  /** Serve a calibration from now on: also the way back to an older one. */
  async activate(id: string, options: CallOptions = {}): Promise<types.Calibration> {
    return this.#transport.json("POST /calibrations/{calibration_id}/activate", { ...options, ids: [id] });
  }

  /** Return the report of a calibration. */
  async report(id: string, options: CallOptions = {}): Promise<Answer<"GET /calibrations/{calibration_id}/report">> {
    return this.#transport.json("GET /calibrations/{calibration_id}/report", { ...options, ids: [id] });
  }

  /** Return the report of a calibration as one self-contained HTML page. */
  async reportPage(id: string, options: CallOptions = {}): Promise<string> {
    return this.#transport.text("GET /calibrations/{calibration_id}/report", { ...options, ...PAGE, ids: [id] });
  }

  /** Yield the rows of a calibration, with the answers drawn. They may be posted again. */
  async *calibrationRows(id: string, options: CallOptions = {}): AsyncGenerator<types.Row, void, undefined> {
    const call = { ...options, ids: [id] };
    const pieces = this.#transport.pieces("GET /calibrations/{calibration_id}/data", call);
    for await (const row of recordsOf(pieces)) yield row as types.Row;
  }

  /** Forget the rows of a calibration; the calibration itself stays. */
  async forgetRows(id: string, options: CallOptions = {}): Promise<void> {
    await this.#transport.text("DELETE /calibrations/{calibration_id}/data", { ...options, ids: [id] });
  }

  /** Return all keys, but for the keys themselves. */
  async keys(options: CallOptions = {}): Promise<types.Key[]> {
    return this.#transport.json("GET /keys", options);
  }

  /** Make a key. The answer is the only one that holds it. */
  async createKey(request: types.KeyRequest, options: CallOptions = {}): Promise<types.MadeKey> {
    // Made again, it would leave a key that nobody knows.
    return this.#transport.json("POST /keys", { ...options, json: request, once: true });
  }

  /** Revoke a key: at once on the replica that is asked, within two seconds on others. Raises NotFoundError. */
  async revokeKey(id: string, options: CallOptions = {}): Promise<void> {
    await this.#transport.text("DELETE /keys/{key_id}", { ...options, ids: [id] });
  }

  /** Tell that the process is up, and its version. */
  async health(options: CallOptions = {}): Promise<Answer<"GET /healthz">> {
    return this.#transport.json("GET /healthz", options);
  }

  /** Tell that prompts can be scored. Raises the error of the part that is not there; it asks once. */
  async ready(options: CallOptions = {}): Promise<Answer<"GET /readyz">> {
    return this.#transport.json("GET /readyz", { maxRetries: 0, ...options });
  }

  /** Return the service's metrics as Prometheus reads them. */
  async metrics(options: CallOptions = {}): Promise<string> {
    return this.#transport.text("GET /metrics", options);
  }
}

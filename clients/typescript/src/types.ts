import type { Schema } from "./contract.js";
import type { EigencalError } from "./errors.js";

/** A request for a score: a `prompt`, `messages`, or `samples` drawn already, and how to score them. */
export type ScoreRequest = Schema<"ScoreRequest">;
/** A score: `lambda_max` (0..1, higher = more certain), `entropy` (nats), and what they rest on. */
export type Score = Schema<"Score">;
/** A warning on a score. */
export type Warning = Schema<"ScoreWarning">;
/** A claim of a chat's answer, for its reader: what in the text to doubt, and why. */
export type Mark = Schema<"Mark">;
/** A labelled question. */
export type Row = Schema<"ExampleIn">;
/** A calibration, as the service lists it. */
export type Activation = Schema<"Activation">;
export type Calibration = Schema<"CalibrationOut">;
export type Corrections = Schema<"CorrectionsRequest">;
/** The state of a job. */
export type JobState = Schema<"Job">;
/** An error's body (RFC 9457). */
export type Problem = Schema<"Problem">;
/** What can be decided of a calibration beside its rows. */
export type CalibrateOptions = Omit<Schema<"CalibrateRequest">, "examples">;
export type VerifyRequest = Schema<"VerifyRequest">;
export type Verified = Schema<"Verified">;

/** A key, but for the key itself. */
export type Key = Schema<"KeyOut">;
/** A key to be made. */
export type KeyRequest = Schema<"KeyRequest">;
/** A key that was made now: `key` is shown this once. */
export type MadeKey = Schema<"MadeKey">;

type Status = Schema<"KeptScore">["status"];

/** A score found by its id: whole once `status` is `scored`; of what was not or could not be, a `warning`. */
export type KeptScore =
  | ({ status: "scored" } & Score)
  | { status: Exclude<Status, "scored">; id: string; warning?: Warning };

/** What the drop-in says of an answer: a score's fields, but for those that repeat the answers. */
export type Uncertainty = {
  status: Status;
  id?: string;
  warning?: Warning;
  withheld?: string;
  marks?: Mark[];
} & Partial<Omit<Score, "id" | "answer" | "modes" | "samples">>;

/** Settings of one call. */
export interface CallOptions {
  /** Ends the call; it rejects with the signal's reason. */
  signal?: AbortSignal | undefined;
  /** Longest wait for an answer, and in a stream for its next piece. Infinity: no limit. */
  timeoutMs?: number | undefined;
  /** How often a call that failed is made again, where that is safe. */
  maxRetries?: number | undefined;
  /** Further headers, such as `X-Request-ID`. */
  headers?: Record<string, string> | undefined;
}

/** An item of a batch: its place in what was given, counted from 0, and its score, or why it has none. */
export type BatchItem =
  | { index: number; result: Score; error?: never }
  | { index: number; result?: never; error: EigencalError };

/** A chat or a text to complete, as the LLM server takes it, and what Eigencal is to do with the answer. */
export interface CompletionRequest {
  model: string;
  stream?: boolean | undefined;
  eigencal?: {
    effort?: NonNullable<ScoreRequest["effort"]>;
    num_samples?: number;
    target_error?: number;
    confidence?: number;
    calibration?: string;
    claims?: boolean;
    mark?: boolean;
    abstain?: boolean;
  };
  [more: string]: unknown;
}
export interface ChatRequest extends CompletionRequest {
  messages: readonly { role: string; content?: unknown; [more: string]: unknown }[];
}
export interface TextRequest extends CompletionRequest {
  prompt: unknown;
}

interface Choice {
  index: number;
  finish_reason: string | null;
  [more: string]: unknown;
}
/** What an OpenAI-compatible server answers with, and beside it `uncertainty`. */
interface Completion<C extends Choice> {
  id: string;
  model: string;
  choices: C[];
  uncertainty?: Uncertainty;
  [more: string]: unknown;
}
interface Said {
  role?: string;
  content?: string | null;
  [more: string]: unknown;
}
export type ChatCompletion = Completion<Choice & { message: Said }>;
export type ChatChunk = Completion<Choice & { delta: Said }>;
export type TextCompletion = Completion<Choice & { text: string }>;
/** The models of the LLM server. */
export interface Models {
  data: { id: string; [more: string]: unknown }[];
  [more: string]: unknown;
}

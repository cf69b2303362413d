export type { BatchOptions, Scorable } from "./batch.js";
export { Eigencal } from "./client.js";
export * from "./errors.js";
export type { Job, WaitOptions } from "./jobs.js";
export type { EigencalOptions } from "./options.js";
export type * from "./types.js";
export type { DevData, SubmitOptions } from "./uploads.js";

// Made from ../openapi.json by `npm run generate`; changed there alone.
export interface paths {
    "/": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List the paths of the service
         * @description Return the paths of the service. A browser is redirected to the console.
         */
        get: operations["root__get"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/calibrate": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Fit a calibration on labelled prompts
         * @description Check every row of the dev data, store them, and start a job that draws, fits and reports.
         *
         *     One bad row refuses the whole file, and nothing is stored. The error lists the first 20 bad rows by line,
         *     field and reason.
         */
        post: operations["post_calibrate_calibrate_post"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/calibrations": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List all calibrations
         * @description Return all calibrations, latest first. A browser is redirected to the console.
         */
        get: operations["get_calibrations_calibrations_get"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/calibrations/activations": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List all activations
         * @description Return all activations, newest first. Each was active until the next one with its `fingerprint_key`.
         */
        get: operations["get_activations_calibrations_activations_get"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/calibrations/active": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List the active calibrations
         * @description Return the active calibration of each fingerprint, the service's own set-up first.
         */
        get: operations["get_active_calibrations_active_get"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/calibrations/{calibration_id}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Get a calibration
         * @description Return a calibration with its parameters for every number of answers.
         */
        get: operations["get_calibration_calibrations__calibration_id__get"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/calibrations/{calibration_id}/activate": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Activate a calibration
         * @description Apply this calibration to requests with its fingerprint, on every replica.
         *
         *     To go back, activate the previous calibration.
         */
        post: operations["post_activate_calibrations__calibration_id__activate_post"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/calibrations/{calibration_id}/data": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Export the rows with the drawn answers
         * @description Export the rows that were used in the fit.
         */
        get: operations["get_data_calibrations__calibration_id__data_get"];
        put?: never;
        post?: never;
        /**
         * Delete the rows
         * @description Delete the prompts, references and answers permanently. The calibration and its report stay.
         *
         *     Calibrations with corrected verdicts keep copies of the rows. Delete those, too.
         */
        delete: operations["delete_data_calibrations__calibration_id__data_delete"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/calibrations/{calibration_id}/report": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Get the report as JSON or as a page with plots
         * @description Return the report as JSON, or as HTML if the request prefers it.
         *
         *     The report is from the time of the fit. Only `now` (whether the calibration is active) and `verdicts` are
         *     current: the judged answers of its rows, at most 1,000, the most doubtful first; null once the rows are
         *     deleted.
         */
        get: operations["get_report_calibrations__calibration_id__report_get"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/calibrations/{calibration_id}/rows": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        /**
         * Correct verdicts on the rows, and fit again
         * @description Start a job that fits another calibration on the same rows and answers, with corrected verdicts.
         *
         *     No answers are drawn, and this calibration does not change. A verdict on a row without `answer` is about
         *     its dominant answer, which the report and the export show. An unknown row is refused with 422. Deleted
         *     rows are a conflict.
         */
        patch: operations["patch_rows_calibrations__calibration_id__rows_patch"];
        trace?: never;
    };
    "/health": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Same as /healthz, for routers that expect this path
         * @description Return ok, regardless of the state of the LLM and the store.
         */
        get: operations["healthz_health_get"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/healthz": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Is the process running?
         * @description Return ok, regardless of the state of the LLM and the store.
         */
        get: operations["healthz_healthz_get"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/jobs": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List the latest jobs
         * @description Return jobs, latest first.
         */
        get: operations["get_jobs_jobs_get"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/jobs/{job_id}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Get a job
         * @description Return the state of a job, its progress and its results.
         */
        get: operations["get_job_jobs__job_id__get"];
        put?: never;
        post?: never;
        /**
         * Cancel a job
         * @description Cancel an open or failed job and delete its rows. A job that has succeeded is a conflict.
         */
        delete: operations["delete_job_jobs__job_id__delete"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/jobs/{job_id}/retry": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Retry a job
         * @description Queue a failed job again. It keeps the answers it has and draws only the missing ones.
         *
         *     If a job has succeeded without the rows that the LLM server refused, a new job asks for these rows and
         *     makes its own calibration. It is a conflict if nothing is missing, or if the answers were drawn with other
         *     settings.
         */
        post: operations["post_retry_jobs__job_id__retry_post"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/keys": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List all keys
         * @description Return all keys without their secrets, latest first, including revoked and expired ones.
         */
        get: operations["get_keys_keys_get"];
        put?: never;
        /**
         * Create a key
         * @description Create a key that works immediately on every replica. The key is shown only in this response.
         *
         *     The first key of a scope closes the scope's routes to callers without a key, permanently: also if the key
         *     is revoked later. An admin key also opens scoring, but does not close it.
         */
        post: operations["post_key_keys_post"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/keys/{key_id}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post?: never;
        /**
         * Revoke a key
         * @description Revoke a key permanently: on this replica at once, on other replicas within seconds.
         *
         *     Requests in progress continue. Revoking a revoked key also returns 204.
         */
        delete: operations["delete_key_keys__key_id__delete"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/metrics": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Prometheus metrics
         * @description Return all metrics in the Prometheus text format.
         */
        get: operations["metrics_metrics_get"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/readyz": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Can prompts be scored?
         * @description Check the store, the embedder and the LLM. The error 503 names the part that does not work.
         */
        get: operations["readyz_readyz_get"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/score": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Score how uncertain the LLM is about a prompt
         * @description Draw answers (or use yours), embed them, and return the spectrum's largest eigenvalue and entropy.
         *
         *     The values are calibrated if a calibration fits this set-up. Otherwise they are raw, `calibrated` is false
         *     and a warning gives the reason. A `candidate` is judged by the answers. With one token, the LLM also
         *     checks the judged text (`self_check`). With a `target_error`, the response has a decision: let the
         *     `candidate` or, without one, the `answer` through, or hold it back. With `num_samples` 0, no answers are
         *     drawn: the `candidate` is judged by its log-probability and the self-check, and there is no spectrum.
         */
        post: operations["post_score_score_post"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/score/batch": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Score up to 256 prompts
         * @description Score up to 256 prompts. Lines arrive in the order of completion.
         *
         *     A bad item gets an error line and does not affect the others.
         */
        post: operations["post_batch_score_batch_post"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/scores/{score_id}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Get a score by its id
         * @description Return a stored score. Every replica can return it until the retention period of the settings ends.
         *
         *     By default, scores are kept for one hour, up to the latest 10,000. Only the key that created a score can
         *     read it.
         */
        get: operations["get_score_scores__score_id__get"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/chat/completions": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Chat Completions
         * @description Return the LLM server's answer to a chat, with its uncertainty.
         */
        post: operations["chat_completions_v1_chat_completions_post"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/models": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Models
         * @description List the models of the LLM server.
         */
        get: operations["models_v1_models_get"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/responses": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Responses
         * @description Return the LLM server's response, with its uncertainty.
         */
        post: operations["responses_v1_responses_post"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/responses/compact": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Compact
         * @description Return the LLM server's compaction of a conversation, without a score.
         *
         *     404 if the operator withholds answers by their score.
         */
        post: operations["compact_v1_responses_compact_post"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/verify": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Is this answer right? In the format of vLLM's semantic router
         * @description Draw answers to the question and judge the given answer by them.
         *
         *     `confidence` is P(correct) of the active calibration. If no calibration provides it, the error 503
         *     `no_probability` gives the reason. Raw values are not probabilities and are not returned as `confidence`.
         */
        post: operations["post_verify_verify_post"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
}
export type webhooks = Record<string, never>;
export interface components {
    schemas: {
        /**
         * Activation
         * @description An activation of a calibration.
         */
        Activation: {
            /**
             * Activated At
             * Format: date-time
             * @description Time of the activation.
             */
            activated_at: string;
            /**
             * By
             * @description Author of the activation: the job's id; `key_…` and its name; `settings key`; `no key` if none was needed.
             */
            by: string;
            /**
             * Calibration Id
             * @description Id of the calibration.
             */
            calibration_id: string;
            /**
             * Fingerprint Key
             * @description Key of the set-up. One calibration is active for each key.
             */
            fingerprint_key: string;
            /**
             * Reason
             * @description Reason of the activation.
             */
            reason: string;
            /**
             * Replaced
             * @description Id of the calibration that was active until then.
             */
            replaced: string | null;
        };
        /**
         * BatchRequest
         * @description Up to 256 score requests. A bad item gets its own error line and does not affect the others.
         */
        BatchRequest: {
            /**
             * Items
             * @description Score requests in the format of POST /score.
             */
            items: unknown[];
        };
        /**
         * CalibrateForm
         * @description Dev data as a file, options as form fields.
         */
        CalibrateForm: {
            /**
             * Activate
             * @description When to activate the calibration. `if_better`: if it is better than the active one on the same rows.
             * @default if_better
             * @enum {string}
             */
            activate?: "if_better" | "always" | "never";
            /**
             * Compare
             * @description How answers are compared, as in `POST /score`. A calibration applies to one way only. Left out: the service's setting. Claims are never compared by the LLM.
             * @enum {string}
             */
            compare?: "embeddings" | "llm";
            /**
             * Drawn By
             * @description Source of the rows' `samples`. `service`: you confirm that this LLM set-up drew them.
             * @default caller
             * @enum {string}
             */
            drawn_by?: "caller" | "service";
            /**
             * File
             * Format: binary
             * @description JSONL or CSV in UTF-8. Rows have the same fields as `examples` in JSON.
             */
            file: string;
            /**
             * Method
             * @description Map to serve. `auto`: the map with the lowest cross-validated risk, including `evidence` if every answer has a log-probability. `both`: the better of the two other maps.
             * @default auto
             * @enum {string}
             */
            method?: "depolarized" | "temperature" | "evidence" | "both" | "auto";
            /**
             * Name
             * @description Name for display. Left out: the name of an uploaded file.
             * @default
             */
            name?: string;
            /**
             * Num Samples
             * @description Answers per prompt. Left out: the number that a score draws.
             */
            num_samples?: number;
            /**
             * Seed
             * @description Seed of folds and resamples.
             * @default 0
             */
            seed?: number;
            /**
             * Self Check
             * @description Whether P(correct) uses the LLM's self-checks of the judged texts, as in `POST /score`. Left out: the service's setting.
             */
            self_check?: boolean;
            /**
             * Source Label
             * @description Name of the caller's own set-up. The calibration applies to scores with the same label.
             * @default
             */
            source_label?: string;
            /**
             * Unit
             * @description Unit of the calibrated scores: `answer` for whole answers, `claim` for single claims of long answers, by the `claims` of the rows.
             * @default answer
             * @enum {string}
             */
            unit?: "answer" | "claim";
        };
        /**
         * CalibrateRequest
         * @description Dev data and options as JSON.
         */
        CalibrateRequest: {
            /**
             * Activate
             * @description When to activate the calibration. `if_better`: if it is better than the active one on the same rows.
             * @default if_better
             * @enum {string}
             */
            activate?: "if_better" | "always" | "never";
            /**
             * Compare
             * @description How answers are compared, as in `POST /score`. A calibration applies to one way only. Left out: the service's setting. Claims are never compared by the LLM.
             * @enum {string}
             */
            compare?: "embeddings" | "llm";
            /**
             * Drawn By
             * @description Source of the rows' `samples`. `service`: you confirm that this LLM set-up drew them.
             * @default caller
             * @enum {string}
             */
            drawn_by?: "caller" | "service";
            /**
             * Examples
             * @description Labelled rows.
             */
            examples: components["schemas"]["ExampleIn"][];
            /**
             * Method
             * @description Map to serve. `auto`: the map with the lowest cross-validated risk, including `evidence` if every answer has a log-probability. `both`: the better of the two other maps.
             * @default auto
             * @enum {string}
             */
            method?: "depolarized" | "temperature" | "evidence" | "both" | "auto";
            /**
             * Name
             * @description Name for display. Left out: the name of an uploaded file.
             * @default
             */
            name?: string;
            /**
             * Num Samples
             * @description Answers per prompt. Left out: the number that a score draws.
             */
            num_samples?: number;
            /**
             * Seed
             * @description Seed of folds and resamples.
             * @default 0
             */
            seed?: number;
            /**
             * Self Check
             * @description Whether P(correct) uses the LLM's self-checks of the judged texts, as in `POST /score`. Left out: the service's setting.
             */
            self_check?: boolean;
            /**
             * Source Label
             * @description Name of the caller's own set-up. The calibration applies to scores with the same label.
             * @default
             */
            source_label?: string;
            /**
             * Unit
             * @description Unit of the calibrated scores: `answer` for whole answers, `claim` for single claims of long answers, by the `claims` of the rows.
             * @default answer
             * @enum {string}
             */
            unit?: "answer" | "claim";
        };
        /**
         * CalibrationOut
         * @description A calibration. The fit does not change; `active`, `applies_now`, `data_kept` and `promise` can.
         */
        CalibrationOut: {
            /**
             * Activated At
             * @description Time of the activation. Null if it is not active.
             */
            activated_at: string | null;
            /**
             * Active
             * @description Whether the calibration is applied to requests with its fingerprint.
             */
            active: boolean;
            /**
             * Applies Now
             * @description Whether the calibration fits the current set-up: the LLM, its sampling and the embedder. For a caller's own answers: the embedder.
             */
            applies_now: boolean;
            /**
             * Correctness Sample Counts
             * @description Numbers of answers for which the calibration has P(correct) and thresholds. Empty if the verdicts on its rows are not sufficient. The report gives the reason.
             */
            correctness_sample_counts: number[];
            /**
             * Created At
             * Format: date-time
             * @description Time of the fit.
             */
            created_at: string;
            /**
             * Data Kept
             * @description Whether the rows are still stored.
             */
            data_kept: boolean;
            /**
             * Depolarization
             * @description Depolarization g at the full number of answers. 0 for `temperature`.
             */
            depolarization: number;
            /**
             * Eps
             * @description Null eigenvalue used to fit `temperature`.
             */
            eps: number;
            /**
             * Evidence
             * @description For `evidence`: parameters for every number of answers from 1. Null for other methods.
             */
            evidence: components["schemas"]["EvidenceParametersOut"][] | null;
            /**
             * Fingerprint
             * @description The set-up that the calibration is bound to, part by part.
             */
            fingerprint: {
                [key: string]: unknown;
            };
            /**
             * Fingerprint Key
             * @description Short hash of the fingerprint. One calibration is active per key.
             */
            fingerprint_key: string;
            /**
             * Id
             * @description Id of the calibration.
             */
            id: string;
            /**
             * Job Id
             * @description Id of the job that made the calibration.
             */
            job_id: string | null;
            /**
             * Links
             * @description Paths: `self`, `report` and `activate`. Also `data` if the rows are stored.
             */
            links: {
                [key: string]: string;
            };
            /**
             * Method
             * @description Map that the calibration applies.
             * @enum {string}
             */
            method: "depolarized" | "temperature" | "evidence";
            /**
             * Name
             * @description Name of the calibration.
             */
            name: string;
            /**
             * Num Samples
             * @description The full number of answers: the number drawn per prompt for the fit.
             */
            num_samples: number;
            /**
             * Origin
             * @description `own`: your questions. `bundled`: those that the service asks each new LLM. `both`: fewer than 100 of yours, so promises also count the bundled ones.
             * @enum {string}
             */
            origin: "bundled" | "both" | "own";
            /**
             * Parameters
             * @description Parameters for every number of answers from 2. For `evidence`: the parameters for answers without log-probabilities.
             */
            parameters: components["schemas"]["ParametersOut"][];
            /**
             * Projection Ece
             * @description Projection ECE on held-out rows, 0..1: the gap between `lambda_max` and the observed projection.
             */
            projection_ece: number | null;
            /** @description The promise of a decision with the recommended number of answers, for the configured target error (0.2 if not set). If this error cannot be promised: for the lowest possible error with this number of answers or, if it allows no promise, with another. Null if no error can be promised. */
            promise: components["schemas"]["PromiseOut"] | null;
            /**
             * Raw Projection Ece
             * @description Projection ECE of raw scores on the held-out rows, 0..1.
             */
            raw_projection_ece: number | null;
            /**
             * Rows
             * @description Number of rows used in the fit.
             */
            rows: number;
            /**
             * Temperature
             * @description Matrix temperature T at the full number of answers. For `evidence`: T for answers without log-probabilities.
             */
            temperature: number;
        };
        /**
         * CalibrationUsed
         * @description The calibration that the score used, with the parameters for its number of answers.
         */
        CalibrationUsed: {
            /**
             * Created At
             * Format: date-time
             * @description Time of the fit.
             */
            created_at: string;
            /**
             * Depolarization
             * @description Depolarization g applied. 0 for `temperature`. For `evidence`: the g of this score. Null without samples.
             */
            depolarization: number | null;
            /**
             * Evidence Intercept
             * @description For `evidence`: a of g = sigmoid(a + b logit u). u is the missing mass.
             */
            evidence_intercept?: number | null;
            /**
             * Evidence Slope
             * @description For `evidence`: b of the same formula.
             */
            evidence_slope?: number | null;
            /**
             * Id
             * @description Id of the calibration.
             */
            id: string;
            /**
             * Kernel
             * @description Kernel that compares the answers: `facts` (numbers, names, negation, wording), `llm` (facts and the LLM's judgement of each pair) or `paper` (cosine of the embeddings).
             * @enum {string}
             */
            kernel: "facts" | "llm" | "paper";
            /**
             * Method
             * @description The map applied.
             * @enum {string}
             */
            method: "depolarized" | "temperature" | "evidence";
            /**
             * Origin
             * @description `own`: your questions. `bundled`: those that the service asks each new LLM. `both`: fewer than 100 of yours, so promises also count the bundled ones.
             * @enum {string}
             */
            origin: "own" | "both" | "bundled";
            /**
             * Temperature
             * @description Matrix temperature T applied. Null without samples.
             */
            temperature: number | null;
        };
        /**
         * Candidate
         * @description The judgement of the text sent as `candidate`.
         */
        Candidate: {
            /**
             * Mode
             * @description Index of the candidate's meaning. 0 is the largest eigenvalue. The index also applies to `modes` if `modes` is long enough. Null if a larger part of the candidate lies outside all answers than on any meaning: no answer supports it. Null without samples.
             */
            mode: number | null;
            /**
             * Probability
             * @description Probability of the candidate by Born's rule under the served matrix, 0..lambda_max. Higher = closer to the LLM's meaning. Raw if `calibration` is null. Null without samples.
             */
            probability: number | null;
            /**
             * Probability Correct
             * @description Probability that the candidate is right, 0..1. Null if `mode` is null although there are samples, and in the cases listed for `probability_correct` of the response. Unlike `probability`, it is estimated from verdicts on answers to the calibration's questions, if there are any.
             */
            probability_correct: number | null;
        };
        /**
         * Claim
         * @description One claim of a long answer: a sentence, a list item, a table row or a field of JSON.
         */
        Claim: {
            /**
             * Decision
             * @description `answer`: let the claim through. `abstain`: hold it back. The target error holds for one random claim of each answer: few of those let through are wrong. Null if no calibration of claims can decide.
             */
            decision: ("answer" | "abstain") | null;
            /**
             * Doubtful
             * @description Whether a reader should doubt the claim. True if `decision` is `abstain`; without a decision, if `probability_correct` is below 0.5; without both, if no sample agrees. Null if none of the three is known.
             */
            readonly doubtful: boolean | null;
            /**
             * End
             * @description End of the claim in the same text, exclusive.
             */
            end: number;
            /**
             * Entropy
             * @description Served von Neumann entropy in nats. Higher = less certain.
             */
            entropy: number | null;
            /**
             * Fact Logprob
             * @description Log-probability of the claim's numbers and names in nats, without those of the question. If it has none: of its other words.
             */
            fact_logprob: number | null;
            /**
             * Lambda Max
             * @description Largest served eigenvalue of the answers' statements on the claim, 0..1. Higher = more agreement. Null without samples, like `entropy`, `probability` and `support`.
             */
            lambda_max: number | null;
            /**
             * Least Logprob
             * @description Log-probability of the least likely token among those of `fact_logprob`, in nats.
             */
            least_logprob: number | null;
            /**
             * Logprob
             * @description Log-probability of all tokens of the claim in nats. Higher = more certain. Null if it is unknown.
             */
            logprob: number | null;
            /**
             * Probability
             * @description Probability of the claim by Born's rule under the served matrix, 0..lambda_max. Higher = closer to the meaning of the answers.
             */
            probability: number | null;
            /**
             * Probability Correct
             * @description Probability that the claim is right, 0..1, estimated from the verdicts on claims in the calibration's rows. Null without such a calibration, and if no answer mentions the claim.
             */
            probability_correct: number | null;
            /**
             * Start
             * @description Start of the claim in the judged text (for chats: in the text of the choice), in characters (code points).
             */
            start: number;
            /** @description Number of samples that agree, differ or are silent. Null without samples. */
            support: components["schemas"]["ClaimSupport"] | null;
            /**
             * Text
             * @description Text of the claim without Markdown markup. For JSON: `path: value`.
             */
            text: string;
        };
        /**
         * ClaimIn
         * @description A claim of a row's answer: its `text` as in a score's `claims`, and a verdict.
         */
        ClaimIn: {
            /**
             * Correct
             * @description Whether the claim is right.
             */
            correct: boolean;
            /**
             * Fact Logprob
             * @description The value of the same name in a score's `claims`.
             * @default null
             */
            fact_logprob?: number | null;
            /**
             * Least Logprob
             * @description The value of the same name in a score's `claims`.
             * @default null
             */
            least_logprob?: number | null;
            /**
             * Logprob
             * @description The value of the same name in a score's `claims`, for P(correct) without samples.
             * @default null
             */
            logprob?: number | null;
            /**
             * Text
             * @description Text of the claim.
             */
            text: string;
        };
        /**
         * ClaimSupport
         * @description Number of samples that support a claim, differ from it or do not mention it.
         */
        ClaimSupport: {
            /**
             * Agree
             * @description Number of answers with the same meaning.
             */
            agree: number;
            /**
             * Differ
             * @description Number of answers that mention the subject but mean something else.
             */
            differ: number;
            /**
             * Example
             * @description Sentence of an answer that differs: the one least similar to the claim. Null if no answer differs.
             */
            example: string | null;
            /**
             * Silent
             * @description Number of answers that do not mention the subject.
             */
            silent: number;
        };
        /**
         * Correction
         * @description A row by its `line` or its `id`, and the verdict on its judged answer.
         */
        Correction: {
            /**
             * Correct
             * @description Whether the judged answer is right.
             */
            correct: boolean;
            /**
             * Id
             * @description Id of the row, instead of `line`.
             */
            id?: string;
            /**
             * Line
             * @description Line of the row in the file.
             */
            line?: number;
        };
        /**
         * CorrectionsRequest
         * @description Corrected verdicts, and options of the calibration that is fitted with them.
         */
        CorrectionsRequest: {
            /**
             * Activate
             * @description When to activate the new calibration. Left out: at once if the corrected calibration is active, otherwise never.
             * @enum {string}
             */
            activate?: "if_better" | "always" | "never";
            /**
             * Method
             * @description Map to serve. Left out: the map of the corrected calibration.
             * @enum {string}
             */
            method?: "depolarized" | "temperature" | "evidence" | "both" | "auto";
            /**
             * Name
             * @description Name for display. Left out: the same name.
             */
            name?: string;
            /**
             * Rows
             * @description Corrected verdicts by row.
             */
            rows: components["schemas"]["Correction"][];
        };
        /**
         * Decision
         * @description The decision to let a text through or hold it back. It limits the share of wrong texts let through.
         */
        Decision: {
            /**
             * Action
             * @description `answer`: let the text through. `abstain`: hold it back.
             * @enum {string}
             */
            action: "answer" | "abstain";
            /**
             * Confidence
             * @description Confidence level of the promise, 0..1. At least this share of calibrations, on other questions drawn in the same way, keeps every error that it promises for this number of answers, all at once. `target_error` may therefore be chosen after looking at the errors that can be promised. The level does not describe this single text.
             */
            confidence: number;
            /**
             * Coverage
             * @description Share of the calibration's questions that are let through, 0..1. 0 if none is let through.
             */
            coverage: number | null;
            /**
             * Reason
             * @description Reason and advice in plain English.
             */
            reason: string;
            /**
             * Target Error
             * @description Largest share of wrong texts among those let through, 0..1.
             */
            target_error: number;
            /**
             * Threshold
             * @description Smallest P(correct) that is let through. Null if the target cannot be promised.
             */
            threshold: number | null;
        };
        /**
         * Evidence
         * @description Evidence from the log-probabilities of the answers.
         */
        Evidence: {
            /**
             * Mean Logprob
             * @description Mean log-probability of a whole answer in nats. Higher = more certain.
             */
            mean_logprob: number;
            /**
             * Missing Mass
             * @description Probability that the LLM assigns to answers other than the samples, 0..1. Higher = less certain.
             */
            missing_mass: number;
        };
        /**
         * EvidenceParametersOut
         * @description Evidence map for this number of answers: g = sigmoid(a + b logit u). u is the missing mass.
         */
        EvidenceParametersOut: {
            /**
             * Evidence Intercept
             * @description Intercept a.
             */
            evidence_intercept: number;
            /**
             * Evidence Slope
             * @description Slope b, 0 or more. 0: the evidence has no effect.
             */
            evidence_slope: number;
            /**
             * Num Samples
             * @description Number of answers.
             */
            num_samples: number;
            /**
             * Temperature
             * @description Matrix temperature T.
             */
            temperature: number;
        };
        /**
         * ExampleIn
         * @description A labelled row: `prompt` or `messages`, with the right answer. A null counts as left out.
         */
        ExampleIn: {
            /**
             * Answer
             * @description The answer that `correct` is about.
             */
            answer?: string | null;
            /**
             * Answer Logprob
             * @description Natural-log probability of the whole `answer`, including its last token, for P(correct) without samples.
             */
            answer_logprob?: number | null;
            /**
             * Claims
             * @description Claims of a long answer to the prompt, with verdicts, for `unit` = `claim`.
             */
            claims?: components["schemas"]["ClaimIn"][] | null;
            /**
             * Correct
             * @description Whether `answer` or, without one, the dominant answer is right. Left out: the words of the answer are compared with `reference`.
             */
            correct?: boolean | null;
            /**
             * Id
             * @description Your name for the row. Unique in the file.
             */
            id?: string | number | null;
            /**
             * Logprob
             * @description Another name of `logprobs`.
             */
            logprob?: number[] | null;
            /**
             * Logprobs
             * @description Natural-log probability of each whole sample, including its last token.
             */
            logprobs?: number[] | null;
            /**
             * Messages
             * @description A conversation, as for POST /score.
             */
            messages?: components["schemas"]["ExampleMessage"][] | null;
            /**
             * Prompt
             * @description A question, as for POST /score.
             */
            prompt?: string | null;
            /**
             * Reference
             * @description The right answer, or a list of right answers. Optional for rows with `claims`, and for rows with `answer` and `correct`. A text that is a JSON list of texts counts as that list.
             */
            reference?: string | string[] | null;
            /**
             * Samples
             * @description Answers already drawn.
             */
            samples?: string[] | null;
            /**
             * Verdict
             * @description For exports: the judged answer, and the reason of the verdict. Not read. To correct a verdict, add `correct`.
             */
            verdict?: unknown;
        };
        /**
         * ExampleMessage
         * @description One turn of a row's conversation.
         */
        ExampleMessage: {
            /**
             * Content
             * @description Text of the turn.
             */
            content: string;
            /**
             * Role
             * @description Speaker of the turn.
             * @enum {string}
             */
            role: "system" | "user" | "assistant";
        };
        /**
         * Health
         * @description The process is running.
         */
        Health: {
            /**
             * Status
             * @description ok: the process responds.
             * @constant
             */
            status: "ok";
            /**
             * Version
             * @description Version of the service.
             */
            version: string;
        };
        /**
         * Job
         * @description A job.
         */
        Job: {
            /**
             * Activated
             * @description Whether the calibration became the active one of its set-up. Null before that is decided.
             */
            activated: boolean | null;
            /**
             * Calibration Id
             * @description Id of the calibration that the job made.
             */
            calibration_id: string | null;
            /**
             * Created At
             * Format: date-time
             * @description Time of the request.
             */
            created_at: string;
            /**
             * Decision
             * @description Verdict on the use of the calibration (the first words of its report), and the reason why it was activated or not.
             */
            decision: string | null;
            /**
             * Done
             * @description Number of completed units of the stage.
             */
            done: number;
            /** @description Reason for the failure. Null without a failure. */
            error: components["schemas"]["JobError"] | null;
            /**
             * Eta S
             * @description Estimated remaining seconds of the stage. Null: unknown.
             */
            eta_s: number | null;
            /**
             * Finished At
             * @description Time of the end.
             */
            finished_at: string | null;
            /**
             * Id
             * @description Id of the job.
             */
            id: string;
            /**
             * Kind
             * @description Kind of the job.
             * @constant
             */
            kind: "calibrate";
            /**
             * Links
             * @description Paths: `self`. After success also `report` and `calibration`.
             */
            links: {
                [key: string]: string;
            };
            /**
             * Name
             * @description Name of the job.
             */
            name: string;
            /**
             * Note
             * @description Reason why an open job waits. Empty if it does not.
             */
            note: string;
            /**
             * Refused Rows
             * @description Number of rows that the LLM server refused while it answered others. Known once the job has ended. Retry the job to ask for them again.
             */
            refused_rows: number;
            /**
             * Stage
             * @description Current stage of a running job.
             */
            stage: ("sampling" | "embedding" | "comparing" | "checking" | "fitting" | "reporting") | null;
            /**
             * Started At
             * @description Time of the first run.
             */
            started_at: string | null;
            /**
             * State
             * @description State of the job. The last three are final, except that a failed job can be retried.
             * @enum {string}
             */
            state: "queued" | "running" | "succeeded" | "failed" | "cancelled";
            /**
             * Total
             * @description Total number of units of the stage.
             */
            total: number;
        };
        /**
         * JobError
         * @description The reason for a job's failure.
         */
        JobError: {
            /**
             * Code
             * @description Code from the error table.
             */
            code: string;
            /**
             * Detail
             * @description Explanation in plain English.
             */
            detail: string;
        };
        /**
         * KeptScore
         * @description A stored score and its state. Further fields are those of POST /score or of the chat's score.
         */
        KeptScore: {
            /**
             * Id
             * @description Id of the score.
             */
            id: string;
            /**
             * Marks
             * @description The claims of a chat's answer, for display to the reader. Present if the chat asked for marks.
             */
            marks?: components["schemas"]["Mark"][] | null;
            /**
             * Status
             * @description pending: ask again later. scored: all fields that POST /score returned are present. not_scored, failed: `warning` gives the reason.
             * @enum {string}
             */
            status: "pending" | "scored" | "not_scored" | "failed";
        } & {
            [key: string]: unknown;
        };
        /**
         * KeyOut
         * @description A key without its secret.
         */
        KeyOut: {
            /**
             * Created At
             * Format: date-time
             * @description Time of creation.
             */
            created_at: string;
            /**
             * Expires At
             * @description Expiry time. Null: valid until it is revoked.
             */
            expires_at: string | null;
            /**
             * Id
             * @description Id of the key.
             */
            id: string;
            /**
             * Name
             * @description Name of the key.
             */
            name: string;
            /**
             * Prefix
             * @description First characters of the key, to recognise it.
             */
            prefix: string;
            /**
             * Revoked At
             * @description Time of revocation. Null if it is not revoked.
             */
            revoked_at: string | null;
            /**
             * Scope
             * @description Routes that the key opens: `score` or `admin`.
             * @enum {string}
             */
            scope: "score" | "admin";
            /**
             * State
             * @description State of the key. Only a valid key opens routes.
             * @enum {string}
             */
            state: "valid" | "expired" | "revoked";
        };
        /**
         * KeyRequest
         * @description A key to create.
         */
        KeyRequest: {
            /**
             * Expires At
             * Format: date-time
             * @description Expiry time, in the future and with a time zone. Left out: the key is valid until it is revoked.
             */
            expires_at?: string;
            /**
             * Name
             * @description Name of the key's user, for display. It need not be unique.
             */
            name: string;
            /**
             * Scope
             * @description score: the scoring routes. admin: all routes.
             * @enum {string}
             */
            scope: "score" | "admin";
        };
        /**
         * KeyWarning
         * @description A warning about a created key.
         */
        KeyWarning: {
            /**
             * Code
             * @description scope_closed: this is the first key of its scope. Callers without a key are now refused.
             */
            code: string;
            /**
             * Message
             * @description Explanation in plain English.
             */
            message: string;
        };
        /**
         * MadeKey
         * @description A new key. Only this response contains the key itself.
         */
        MadeKey: {
            /**
             * Created At
             * Format: date-time
             * @description Time of creation.
             */
            created_at: string;
            /**
             * Expires At
             * @description Expiry time. Null: valid until it is revoked.
             */
            expires_at: string | null;
            /**
             * Id
             * @description Id of the key.
             */
            id: string;
            /**
             * Key
             * @description The key. It is shown only once and not stored.
             */
            key: string;
            /**
             * Name
             * @description Name of the key.
             */
            name: string;
            /**
             * Prefix
             * @description First characters of the key, to recognise it.
             */
            prefix: string;
            /**
             * Revoked At
             * @description Time of revocation. Null if it is not revoked.
             */
            revoked_at: string | null;
            /**
             * Scope
             * @description Routes that the key opens: `score` or `admin`.
             * @enum {string}
             */
            scope: "score" | "admin";
            /**
             * State
             * @description State of the key. Only a valid key opens routes.
             * @enum {string}
             */
            state: "valid" | "expired" | "revoked";
            /**
             * Warnings
             * @description Warnings about the created key.
             */
            warnings: components["schemas"]["KeyWarning"][];
        };
        /**
         * Mark
         * @description A claim in the text of a chat's answer, for display to the reader.
         */
        Mark: {
            /**
             * Doubtful
             * @description Whether to display the claim as doubtful: `doubtful` of the claim.
             */
            doubtful: boolean | null;
            /**
             * End
             * @description End of the claim in the same text, exclusive.
             */
            end: number;
            /**
             * Start
             * @description Start of the claim in the text of the choice, in characters (code points).
             */
            start: number;
            /**
             * Text
             * @description Text of the claim.
             */
            text: string;
            /**
             * Why
             * @description Reason in plain English. Null if the claim is not doubtful.
             */
            why: string | null;
        };
        /**
         * MessageIn
         * @description One turn of a conversation.
         */
        MessageIn: {
            /**
             * Content
             * @description Text of the turn.
             */
            content: string;
            /**
             * Role
             * @description Speaker of the turn.
             * @enum {string}
             */
            role: "system" | "user" | "assistant";
        };
        /**
         * Mode
         * @description One latent meaning among the answers: an eigenvector of the density matrix.
         */
        Mode: {
            /**
             * Answer
             * @description The sample most aligned with this meaning.
             */
            answer: string;
            /**
             * Probability
             * @description Served eigenvalue, 0..1.
             */
            probability: number;
            /**
             * Samples
             * @description Positions of the samples that lie closest to this meaning, in the order drawn, from 0.
             */
            samples: number[];
            /**
             * Share
             * @description Share of the samples that lie closest to this meaning, 0..1.
             */
            share: number;
        };
        /**
         * ParametersOut
         * @description Parameters applied to this number of answers.
         */
        ParametersOut: {
            /**
             * Depolarization
             * @description Depolarization g. 0 for `temperature`.
             */
            depolarization: number;
            /**
             * Num Samples
             * @description Number of answers.
             */
            num_samples: number;
            /**
             * Temperature
             * @description Matrix temperature T.
             */
            temperature: number;
        };
        /**
         * Problem
         * @description An error (RFC 9457).
         */
        Problem: {
            /**
             * Code
             * @description Stable code of the error, for programs.
             */
            code: string;
            /**
             * Detail
             * @description Explanation in plain English.
             */
            detail: string;
            /**
             * Errors
             * @description For invalid requests: the list of faults.
             * @default null
             */
            errors?: components["schemas"]["ProblemItem"][] | null;
            /**
             * Request Id
             * @description Id of the request, also in the header `X-Request-ID`.
             * @default null
             */
            request_id?: string | null;
            /**
             * Retryable
             * @description Whether the same request may succeed later.
             */
            retryable: boolean;
            /**
             * Status
             * @description The HTTP status.
             */
            status: number;
            /**
             * Title
             * @description Name of the HTTP status.
             */
            title: string;
            /**
             * Type
             * @description Kind of the error. All errors with the same code have the same type.
             */
            type: string;
        } & {
            [key: string]: unknown;
        };
        /**
         * ProblemItem
         * @description One fault of the request.
         */
        ProblemItem: {
            /**
             * Loc
             * @description Place of the fault: body, query or path, then the field.
             */
            loc: (string | number)[];
            /**
             * Msg
             * @description Description of the fault.
             */
            msg: string;
        } & {
            [key: string]: unknown;
        };
        /**
         * PromiseOut
         * @description An error rate that is promised for the answers let through.
         */
        PromiseOut: {
            /**
             * Confidence
             * @description Confidence level of the promise, 0..1.
             */
            confidence: number;
            /**
             * Coverage
             * @description Share of the questions that are let through, 0..1.
             */
            coverage: number;
            /**
             * Num Samples
             * @description Number of answers per prompt for which the promise holds.
             */
            num_samples: number;
            /**
             * Target Error
             * @description Largest share of wrong answers among those let through, 0..1.
             */
            target_error: number;
            /**
             * Threshold
             * @description Smallest P(correct) that is let through.
             */
            threshold: number;
        };
        /**
         * Ready
         * @description All parts work.
         */
        Ready: {
            /**
             * Parts
             * @description State by part: store, embedder and llm.
             */
            parts: {
                [key: string]: "ok";
            };
            /**
             * Status
             * @description ready: prompts can be scored.
             * @constant
             */
            status: "ready";
            /**
             * Unreadable
             * @description Stored rows that cannot be read, by table and id. They are skipped.
             * @default []
             */
            unreadable?: string[];
        };
        /**
         * Root
         * @description The paths of the service.
         */
        Root: {
            /**
             * Links
             * @description Paths by name.
             */
            links: {
                [key: string]: string;
            };
            /**
             * Name
             * @description Name of the service.
             */
            name: string;
            /**
             * Version
             * @description Version of the service.
             */
            version: string;
        };
        /**
         * SamplingIn
         * @description Sampling parameters of the LLM. Parameters that are left out come from the settings.
         */
        SamplingIn: {
            /**
             * Max Tokens
             * @description Largest number of tokens in an answer.
             */
            max_tokens?: number;
            /**
             * Seed
             * @description Seed passed to the LLM. Left out: none. Some servers do not accept a seed.
             */
            seed?: number;
            /**
             * Stop
             * @description Strings that end an answer.
             */
            stop?: string[];
            /**
             * Temperature
             * @description Sampling temperature. With 0, all answers are equal.
             */
            temperature?: number;
            /**
             * Top K
             * @description Number of most likely tokens kept. 0: all.
             */
            top_k?: number;
            /**
             * Top P
             * @description Nucleus sampling: probability mass kept.
             */
            top_p?: number;
        };
        /**
         * Score
         * @description The score of a prompt.
         */
        Score: {
            /**
             * Answer
             * @description The sample most aligned with the dominant eigenvector. Without samples: the `candidate`.
             */
            answer: string;
            /**
             * Calibrated
             * @description Whether a calibration was applied.
             */
            calibrated: boolean;
            /** @description The calibration used. Null: the values are raw. */
            calibration: components["schemas"]["CalibrationUsed"] | null;
            /** @description The judgement of the `candidate`. Null without a candidate. */
            candidate: components["schemas"]["Candidate"] | null;
            /**
             * Claims
             * @description Claims of the `candidate` or, without one, of `answer`, in the order of the text. Present if the text is long or the request asks for claims, except with a single answer.
             */
            claims?: components["schemas"]["Claim"][] | null;
            /** @description The calibration applied to the claims. Null: none. Present with `claims`. */
            claims_calibration?: components["schemas"]["CalibrationUsed"] | null;
            /** @description Decision on the `candidate` or, without one, on `answer`, for the target error. Null without a calibration, unless the answers are refusals. A calibration without a `probability_correct` for this score abstains. */
            decision: components["schemas"]["Decision"] | null;
            /**
             * Embedder
             * @description Embedder of the answers.
             */
            embedder: string;
            /**
             * Entropy
             * @description Served von Neumann entropy in nats. Higher = less certain.
             */
            entropy: number | null;
            /**
             * Entropy Normalized
             * @description `entropy` divided by the largest entropy that the spectrum allows, 0..1. Higher = less certain.
             */
            entropy_normalized: number | null;
            /** @description Evidence from the log-probabilities. Null unless every answer has a log-probability. */
            evidence: components["schemas"]["Evidence"] | null;
            /**
             * Id
             * @description Id of the score.
             */
            id: string;
            /**
             * Kernel
             * @description Kernel that compared the answers; see `calibration.kernel`.
             */
            kernel?: ("facts" | "llm" | "paper") | null;
            /**
             * Lambda Max
             * @description Largest served eigenvalue, 0..1: the confidence. Higher = more certain. It measures the share of meaning on which the answers agree, not the probability that the answer is right. Null without samples, like the other values of the spectrum.
             */
            lambda_max: number | null;
            /**
             * Model
             * @description Model that answered. Null for supplied samples, and for a supplied candidate without samples.
             */
            model: string | null;
            /**
             * Modes
             * @description The leading meanings, at most five.
             */
            modes?: components["schemas"]["Mode"][] | null;
            /**
             * Num Distinct
             * @description Number of distinct answers.
             */
            num_distinct: number;
            /**
             * Num Empty
             * @description Number of answers without text. They do not count.
             */
            num_empty: number;
            /**
             * Num Refusals
             * @description Number of drawn answers without content: refusals, placeholders (null), errors, punctuation, or the question itself. They count in the spectrum. If the judged text is a refusal, or more than half of the answers are, the decision is to abstain.
             */
            num_refusals: number;
            /**
             * Num Samples
             * @description Number of answers scored.
             */
            num_samples: number;
            /**
             * Num Truncated
             * @description Number of answers cut at `max_tokens`. They are scored.
             */
            num_truncated: number;
            /**
             * Ood P Value
             * @description Conformal p-value, 0..1, of the hypothesis that the prompt is like the calibration's rows. It compares the question and, with samples, their mean length. Lower = less similar. Below 0.02 the score has a warning. The smallest possible value is 2 / (rows + 1) for the question and 4 / (rows + 1) for the length, so with fewer than 200 rows the length alone cannot reach 0.02. Lengths that no row has then give the same warning. Null without a calibration, and for calibrations that do not keep the prompts of their rows.
             */
            ood_p_value: number | null;
            /**
             * Probability Correct
             * @description Probability that `answer` is right, 0..1, estimated from the verdicts on the calibration's questions. Null without a calibration, if the calibration has no correctness model for this number of answers, if the model needs log-probabilities or a self-check that are missing (only a `candidate` is checked if there is one), and if `answer` is a refusal or the embedder cannot distinguish it from an answer that says something else (warning `indistinct_answers`).
             */
            probability_correct: number | null;
            /**
             * Samples
             * @description The answers in the order drawn.
             */
            samples?: string[] | null;
            /**
             * Self Check
             * @description P(True): probability that the LLM replies Yes when asked whether the judged text, the `candidate` or `answer`, is correct, 0..1. Higher = more likely right. It is a feature of `probability_correct`, and by itself far too high. Null if the LLM was not asked, failed, or replied with neither Yes nor No.
             */
            self_check: number | null;
            timings_ms: components["schemas"]["Timings"];
            /** @description `lambda_max` and `entropy` without calibration. Null without samples. */
            uncalibrated: components["schemas"]["SpectrumValues"] | null;
            /** @description Tokens used, including comparisons and self-checks. Null if the LLM was not called. */
            usage: components["schemas"]["TokenUsage"] | null;
            /**
             * Warnings
             * @description Warnings about the score.
             */
            warnings: components["schemas"]["ScoreWarning"][];
        };
        /**
         * ScoreRequest
         * @description A request for a score: `prompt` or `messages`, or drawn `samples` (`prompt` is then optional).
         */
        ScoreRequest: {
            /**
             * Calibration
             * @description `active`, `none` (raw values) or the id of a calibration.
             * @default active
             */
            calibration?: string;
            /**
             * Candidate
             * @description A text to judge by the answers, for example the text about to be sent. It does not count as an answer. A blank candidate is refused.
             */
            candidate?: string;
            /**
             * Candidate Logprob
             * @description Natural-log probability of the whole `candidate`, including the token that ended it, under the LLM that wrote it. Without samples, the candidate is judged by it alone.
             */
            candidate_logprob?: number;
            /**
             * Candidate Tokens
             * @description Tokens of the `candidate` in order. They give the log-probabilities of its claims, even without samples. Tokens of another text are ignored. They are refused if their sum contradicts `candidate_logprob`.
             */
            candidate_tokens?: components["schemas"]["TokenIn"][];
            /**
             * Claims
             * @description Whether to also score the `candidate` or, without one, `answer` claim by claim. Left out: the text is scored claim by claim if it reaches the length in the settings (400 characters).
             */
            claims?: boolean;
            /**
             * Compare
             * @description How distinct answers are compared. `embeddings`: by their embeddings. `llm`: the LLM is also asked whether both answers of a pair say the same. Claims are compared by their facts. Left out: the service's setting.
             * @enum {string}
             */
            compare?: "embeddings" | "llm";
            /**
             * Confidence
             * @description Confidence level with which the target is kept. Left out: 0.9.
             */
            confidence?: number;
            /**
             * Deadline Ms
             * @description Time limit for the score, in milliseconds. If it passes, the result is the error `deadline_exceeded` (504).
             */
            deadline_ms?: number;
            /**
             * Logprobs
             * @description Natural-log probability of each whole sample, including the token that ended it. One number for each sample. Leave this out if a sample is only a part of the drawn text. (Rows of `POST /calibrate` may also call it `logprob`. Here only this name is accepted.)
             */
            logprobs?: number[];
            /**
             * Messages
             * @description A conversation, sent to the LLM unchanged. The last turn must not be the assistant's.
             */
            messages?: components["schemas"]["MessageIn"][];
            /**
             * Model
             * @description Model requested from the LLM server.
             */
            model?: string;
            /**
             * Num Samples
             * @description Number of answers to draw. At least two are needed. One is enough if a calibration by evidence fits. 0 draws no answers: the `candidate` is judged by its `candidate_logprob`, and there is no spectrum. `auto` draws the number that the report of the calibration recommends (none only with a `candidate_logprob`); without a recommendation, 3. Left out: the number of the settings.
             */
            num_samples?: number | "auto";
            /**
             * Prompt
             * @description A question. The service wraps it in its prompt format.
             */
            prompt?: string;
            /**
             * Return
             * @description Further parts of the score to return.
             * @default [
             *       "modes"
             *     ]
             */
            return?: ("samples" | "modes")[];
            /**
             * Samples
             * @description Answers already drawn. The LLM is called only for a self-check, if the calibration needs it or you ask for it. Empty answers do not count. At least two are needed. One is enough if it has a log-probability and a calibration by evidence fits.
             */
            samples?: string[];
            /** @description Sampling parameters of the answers. */
            sampling?: components["schemas"]["SamplingIn"];
            /**
             * Self Check
             * @description Whether to ask the LLM with one token if the judged text is correct. Calibrations made with such self-checks need them for P(correct). Left out: the service's setting.
             */
            self_check?: boolean;
            /**
             * Source Label
             * @description Name of the model or system that drew `samples`. A calibration fits only its own label.
             */
            source_label?: string;
            /**
             * Target Error
             * @description Largest share of wrong answers among those let through, for `decision`. Left out: the target of the settings, otherwise 0.2 if a calibration can decide.
             */
            target_error?: number;
        };
        /**
         * ScoreWarning
         * @description A warning about the score.
         */
        ScoreWarning: {
            /**
             * Code
             * @description Code of the warning: calibration_missing, calibration_mismatch, bundled_questions, evidence_missing, comparison_missing, self_check_missing, truncated_samples, indistinct_answers, out_of_distribution or claims_left_out.
             */
            code: string;
            /**
             * Differs
             * @description For `calibration_mismatch`: the parts of the set-up that differ.
             */
            differs?: string[] | null;
            /**
             * Message
             * @description Explanation in plain English.
             */
            message: string;
        };
        /**
         * SpectrumValues
         * @description Largest eigenvalue and entropy of a spectrum.
         */
        SpectrumValues: {
            /**
             * Entropy
             * @description Von Neumann entropy in nats. Higher = less certain.
             */
            entropy: number;
            /**
             * Lambda Max
             * @description Largest eigenvalue, 0..1. Higher = more certain.
             */
            lambda_max: number;
        };
        /**
         * Timings
         * @description Duration of each stage in milliseconds.
         */
        Timings: {
            /**
             * Compare
             * @description Comparison of answers by the LLM, after `embed`. Null if the LLM was not asked.
             */
            compare?: number | null;
            /**
             * Embed
             * @description Embedding the distinct answers and the question.
             */
            embed: number;
            /**
             * Generate
             * @description Drawing the answers. Null if the service drew none.
             */
            generate?: number | null;
            /**
             * Queue
             * @description Waiting for parsing and for a slot at the LLM.
             */
            queue: number;
            /**
             * Self Check
             * @description Wait for self-checks, after all other calls. Null if the LLM was not asked.
             */
            self_check?: number | null;
            /**
             * Spectrum
             * @description Spectrum, calibration, modes and claims.
             */
            spectrum: number;
            /**
             * Total
             * @description Total time.
             */
            total: number;
        };
        /**
         * TokenIn
         * @description A token of the candidate, as in chats (`choices[0].logprobs.content`). Other fields are ignored.
         */
        TokenIn: {
            /**
             * Logprob
             * @description Natural-log probability of the token.
             */
            logprob: number;
            /**
             * Token
             * @description Text of the token.
             */
            token: string;
        };
        /**
         * TokenUsage
         * @description Token counts of the LLM server.
         */
        TokenUsage: {
            /**
             * Completion Tokens
             * @description Tokens of all answers.
             */
            completion_tokens: number;
            /**
             * Prompt Tokens
             * @description Tokens of the prompt.
             */
            prompt_tokens: number;
        };
        /**
         * Verified
         * @description The verdict on the answer.
         */
        Verified: {
            /**
             * Claims
             * @description Claims of a long answer, as in POST /score. Null for a short answer.
             */
            claims?: components["schemas"]["Claim"][] | null;
            /**
             * Confidence
             * @description Calibrated probability that the answer is right, 0..1. It is 0 for a refusal, and for an answer that no drawn answer supports.
             */
            confidence: number;
            /**
             * Samples
             * @description The answers in the order drawn.
             */
            samples: string[];
            /**
             * Should Escalate
             * @description True if the confidence is below the threshold, or if most drawn answers are refusals.
             */
            should_escalate: boolean;
            /**
             * Threshold
             * @description Threshold of the request.
             */
            threshold: number;
            /**
             * Total Samples
             * @description Number of answers drawn.
             */
            total_samples: number;
            /**
             * Verified Count
             * @description Number of drawn answers on the mode of the judged answer: they are closest to the same eigenvector of the density matrix, so they have the same meaning. 0 if the answer belongs to no mode.
             */
            verified_count: number;
        };
        /**
         * VerifyRequest
         * @description An answer to judge, and its question. Further fields are ignored.
         */
        VerifyRequest: {
            /**
             * Answer
             * @description The answer to judge.
             */
            answer: string;
            /**
             * Context
             * @description Context of the question, sent as a system message before it.
             */
            context?: string | null;
            /**
             * Question
             * @description The question.
             */
            question: string;
            /**
             * Threshold
             * @description Lowest confidence that is not escalated, 0..1.
             */
            threshold: number;
        };
    };
    responses: never;
    parameters: never;
    requestBodies: never;
    headers: never;
    pathItems: never;
}
export type $defs = Record<string, never>;
export interface operations {
    root__get: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Root"];
                };
            };
            /** @description To the console, if the request prefers HTML. */
            303: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
        };
    };
    post_calibrate_calibrate_post: {
        parameters: {
            query?: never;
            header?: {
                /** @description Key of the request. Requests with the same key, file and options get the same job. */
                "idempotency-key"?: string | null;
            };
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["CalibrateRequest"];
                "multipart/form-data": components["schemas"]["CalibrateForm"];
            };
        };
        responses: {
            /** @description Successful Response */
            202: {
                headers: {
                    /** @description Path of the job. */
                    Location?: string;
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "created_at": "2026-11-21T07:00:00Z",
                     *       "done": 120,
                     *       "eta_s": 412,
                     *       "id": "job_01KAJ3Z7M2T5W8Y4QXN0C6R9DE",
                     *       "kind": "calibrate",
                     *       "links": {
                     *         "self": "/jobs/job_01KAJ3Z7M2T5W8Y4QXN0C6R9DE"
                     *       },
                     *       "name": "TriviaQA, November",
                     *       "note": "",
                     *       "refused_rows": 0,
                     *       "stage": "sampling",
                     *       "started_at": "2026-11-21T07:00:01Z",
                     *       "state": "running",
                     *       "total": 300
                     *     }
                     */
                    "application/json": components["schemas"]["Job"];
                };
            };
            /** @description Unauthorized */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Forbidden */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Conflict */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Request Entity Too Large */
            413: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Unsupported Media Type */
            415: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Unprocessable Entity */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Internal Server Error */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Service Unavailable */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    get_calibrations_calibrations_get: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example [
                     *       {
                     *         "activated_at": "2026-11-21T07:08:00Z",
                     *         "active": true,
                     *         "applies_now": true,
                     *         "correctness_sample_counts": [
                     *           1,
                     *           2,
                     *           20
                     *         ],
                     *         "created_at": "2026-11-21T07:08:00Z",
                     *         "data_kept": true,
                     *         "depolarization": 0.56,
                     *         "eps": 1e-10,
                     *         "evidence": [
                     *           {
                     *             "evidence_intercept": -0.09,
                     *             "evidence_slope": 0.35,
                     *             "num_samples": 1,
                     *             "temperature": 1
                     *           },
                     *           {
                     *             "evidence_intercept": -0.62,
                     *             "evidence_slope": 0.41,
                     *             "num_samples": 20,
                     *             "temperature": 0.92
                     *           }
                     *         ],
                     *         "fingerprint": {
                     *           "api": "completions",
                     *           "embedder": "all-mpnet-base-v2",
                     *           "embedder_dimension": 768,
                     *           "embedder_precision": "float32",
                     *           "embedder_revision": "78c0197b6159d926",
                     *           "evidence": "token_sums",
                     *           "model": "SmolLM2-135M-Instruct",
                     *           "prompt_shape": "5f0a3c1d9be24786",
                     *           "sampling.max_tokens": 64,
                     *           "sampling.stop": [
                     *             "\n"
                     *           ],
                     *           "sampling.temperature": 0.5,
                     *           "sampling.top_k": 0,
                     *           "sampling.top_p": 1,
                     *           "source": "service",
                     *           "source_label": ""
                     *         },
                     *         "fingerprint_key": "0b9f3f6f4a3f1c2e8d7a6b5c4d3e2f10",
                     *         "id": "cal_01KAJ4B8V3S6X9Z5RYP1D7T0EF",
                     *         "job_id": "job_01KAJ3Z7M2T5W8Y4QXN0C6R9DE",
                     *         "links": {
                     *           "activate": "/calibrations/cal_01KAJ4B8V3S6X9Z5RYP1D7T0EF/activate",
                     *           "data": "/calibrations/cal_01KAJ4B8V3S6X9Z5RYP1D7T0EF/data",
                     *           "report": "/calibrations/cal_01KAJ4B8V3S6X9Z5RYP1D7T0EF/report",
                     *           "self": "/calibrations/cal_01KAJ4B8V3S6X9Z5RYP1D7T0EF"
                     *         },
                     *         "method": "evidence",
                     *         "name": "TriviaQA, November",
                     *         "num_samples": 20,
                     *         "origin": "own",
                     *         "parameters": [
                     *           {
                     *             "depolarization": 0.7,
                     *             "num_samples": 2,
                     *             "temperature": 0.55
                     *           },
                     *           {
                     *             "depolarization": 0.56,
                     *             "num_samples": 20,
                     *             "temperature": 0.92
                     *           }
                     *         ],
                     *         "projection_ece": 0.043,
                     *         "promise": {
                     *           "confidence": 0.9,
                     *           "coverage": 0.42,
                     *           "num_samples": 20,
                     *           "target_error": 0.1,
                     *           "threshold": 0.71
                     *         },
                     *         "raw_projection_ece": 0.214,
                     *         "rows": 300,
                     *         "temperature": 0.92
                     *       }
                     *     ]
                     */
                    "application/json": components["schemas"]["CalibrationOut"][];
                };
            };
            /** @description To the console, or to its sign-in, if the request prefers HTML. */
            303: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description Unauthorized */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Forbidden */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Internal Server Error */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Service Unavailable */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    get_activations_calibrations_activations_get: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example [
                     *       {
                     *         "activated_at": "2026-11-21T07:08:00Z",
                     *         "by": "job_01KAJ3Z7M2T5W8Y4QXN0C6R9DE",
                     *         "calibration_id": "cal_01KAJ4B8V3S6X9Z5RYP1D7T0EF",
                     *         "fingerprint_key": "0b9f3f6f4a3f1c2e8d7a6b5c4d3e2f10",
                     *         "reason": "Activated: none was active for this set-up, and on held-out prompts it is better than raw."
                     *       }
                     *     ]
                     */
                    "application/json": components["schemas"]["Activation"][];
                };
            };
            /** @description Unauthorized */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Forbidden */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Internal Server Error */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Service Unavailable */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    get_active_calibrations_active_get: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example [
                     *       {
                     *         "activated_at": "2026-11-21T07:08:00Z",
                     *         "active": true,
                     *         "applies_now": true,
                     *         "correctness_sample_counts": [
                     *           1,
                     *           2,
                     *           20
                     *         ],
                     *         "created_at": "2026-11-21T07:08:00Z",
                     *         "data_kept": true,
                     *         "depolarization": 0.56,
                     *         "eps": 1e-10,
                     *         "evidence": [
                     *           {
                     *             "evidence_intercept": -0.09,
                     *             "evidence_slope": 0.35,
                     *             "num_samples": 1,
                     *             "temperature": 1
                     *           },
                     *           {
                     *             "evidence_intercept": -0.62,
                     *             "evidence_slope": 0.41,
                     *             "num_samples": 20,
                     *             "temperature": 0.92
                     *           }
                     *         ],
                     *         "fingerprint": {
                     *           "api": "completions",
                     *           "embedder": "all-mpnet-base-v2",
                     *           "embedder_dimension": 768,
                     *           "embedder_precision": "float32",
                     *           "embedder_revision": "78c0197b6159d926",
                     *           "evidence": "token_sums",
                     *           "model": "SmolLM2-135M-Instruct",
                     *           "prompt_shape": "5f0a3c1d9be24786",
                     *           "sampling.max_tokens": 64,
                     *           "sampling.stop": [
                     *             "\n"
                     *           ],
                     *           "sampling.temperature": 0.5,
                     *           "sampling.top_k": 0,
                     *           "sampling.top_p": 1,
                     *           "source": "service",
                     *           "source_label": ""
                     *         },
                     *         "fingerprint_key": "0b9f3f6f4a3f1c2e8d7a6b5c4d3e2f10",
                     *         "id": "cal_01KAJ4B8V3S6X9Z5RYP1D7T0EF",
                     *         "job_id": "job_01KAJ3Z7M2T5W8Y4QXN0C6R9DE",
                     *         "links": {
                     *           "activate": "/calibrations/cal_01KAJ4B8V3S6X9Z5RYP1D7T0EF/activate",
                     *           "data": "/calibrations/cal_01KAJ4B8V3S6X9Z5RYP1D7T0EF/data",
                     *           "report": "/calibrations/cal_01KAJ4B8V3S6X9Z5RYP1D7T0EF/report",
                     *           "self": "/calibrations/cal_01KAJ4B8V3S6X9Z5RYP1D7T0EF"
                     *         },
                     *         "method": "evidence",
                     *         "name": "TriviaQA, November",
                     *         "num_samples": 20,
                     *         "origin": "own",
                     *         "parameters": [
                     *           {
                     *             "depolarization": 0.7,
                     *             "num_samples": 2,
                     *             "temperature": 0.55
                     *           },
                     *           {
                     *             "depolarization": 0.56,
                     *             "num_samples": 20,
                     *             "temperature": 0.92
                     *           }
                     *         ],
                     *         "projection_ece": 0.043,
                     *         "promise": {
                     *           "confidence": 0.9,
                     *           "coverage": 0.42,
                     *           "num_samples": 20,
                     *           "target_error": 0.1,
                     *           "threshold": 0.71
                     *         },
                     *         "raw_projection_ece": 0.214,
                     *         "rows": 300,
                     *         "temperature": 0.92
                     *       }
                     *     ]
                     */
                    "application/json": components["schemas"]["CalibrationOut"][];
                };
            };
            /** @description Unauthorized */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Forbidden */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Internal Server Error */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Service Unavailable */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    get_calibration_calibrations__calibration_id__get: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Id of a calibration. */
                calibration_id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "activated_at": "2026-11-21T07:08:00Z",
                     *       "active": true,
                     *       "applies_now": true,
                     *       "correctness_sample_counts": [
                     *         1,
                     *         2,
                     *         20
                     *       ],
                     *       "created_at": "2026-11-21T07:08:00Z",
                     *       "data_kept": true,
                     *       "depolarization": 0.56,
                     *       "eps": 1e-10,
                     *       "evidence": [
                     *         {
                     *           "evidence_intercept": -0.09,
                     *           "evidence_slope": 0.35,
                     *           "num_samples": 1,
                     *           "temperature": 1
                     *         },
                     *         {
                     *           "evidence_intercept": -0.62,
                     *           "evidence_slope": 0.41,
                     *           "num_samples": 20,
                     *           "temperature": 0.92
                     *         }
                     *       ],
                     *       "fingerprint": {
                     *         "api": "completions",
                     *         "embedder": "all-mpnet-base-v2",
                     *         "embedder_dimension": 768,
                     *         "embedder_precision": "float32",
                     *         "embedder_revision": "78c0197b6159d926",
                     *         "evidence": "token_sums",
                     *         "model": "SmolLM2-135M-Instruct",
                     *         "prompt_shape": "5f0a3c1d9be24786",
                     *         "sampling.max_tokens": 64,
                     *         "sampling.stop": [
                     *           "\n"
                     *         ],
                     *         "sampling.temperature": 0.5,
                     *         "sampling.top_k": 0,
                     *         "sampling.top_p": 1,
                     *         "source": "service",
                     *         "source_label": ""
                     *       },
                     *       "fingerprint_key": "0b9f3f6f4a3f1c2e8d7a6b5c4d3e2f10",
                     *       "id": "cal_01KAJ4B8V3S6X9Z5RYP1D7T0EF",
                     *       "job_id": "job_01KAJ3Z7M2T5W8Y4QXN0C6R9DE",
                     *       "links": {
                     *         "activate": "/calibrations/cal_01KAJ4B8V3S6X9Z5RYP1D7T0EF/activate",
                     *         "data": "/calibrations/cal_01KAJ4B8V3S6X9Z5RYP1D7T0EF/data",
                     *         "report": "/calibrations/cal_01KAJ4B8V3S6X9Z5RYP1D7T0EF/report",
                     *         "self": "/calibrations/cal_01KAJ4B8V3S6X9Z5RYP1D7T0EF"
                     *       },
                     *       "method": "evidence",
                     *       "name": "TriviaQA, November",
                     *       "num_samples": 20,
                     *       "origin": "own",
                     *       "parameters": [
                     *         {
                     *           "depolarization": 0.7,
                     *           "num_samples": 2,
                     *           "temperature": 0.55
                     *         },
                     *         {
                     *           "depolarization": 0.56,
                     *           "num_samples": 20,
                     *           "temperature": 0.92
                     *         }
                     *       ],
                     *       "projection_ece": 0.043,
                     *       "promise": {
                     *         "confidence": 0.9,
                     *         "coverage": 0.42,
                     *         "num_samples": 20,
                     *         "target_error": 0.1,
                     *         "threshold": 0.71
                     *       },
                     *       "raw_projection_ece": 0.214,
                     *       "rows": 300,
                     *       "temperature": 0.92
                     *     }
                     */
                    "application/json": components["schemas"]["CalibrationOut"];
                };
            };
            /** @description Unauthorized */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Forbidden */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Not Found */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Internal Server Error */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Service Unavailable */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    post_activate_calibrations__calibration_id__activate_post: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Id of a calibration. */
                calibration_id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "activated_at": "2026-11-21T07:08:00Z",
                     *       "active": true,
                     *       "applies_now": true,
                     *       "correctness_sample_counts": [
                     *         1,
                     *         2,
                     *         20
                     *       ],
                     *       "created_at": "2026-11-21T07:08:00Z",
                     *       "data_kept": true,
                     *       "depolarization": 0.56,
                     *       "eps": 1e-10,
                     *       "evidence": [
                     *         {
                     *           "evidence_intercept": -0.09,
                     *           "evidence_slope": 0.35,
                     *           "num_samples": 1,
                     *           "temperature": 1
                     *         },
                     *         {
                     *           "evidence_intercept": -0.62,
                     *           "evidence_slope": 0.41,
                     *           "num_samples": 20,
                     *           "temperature": 0.92
                     *         }
                     *       ],
                     *       "fingerprint": {
                     *         "api": "completions",
                     *         "embedder": "all-mpnet-base-v2",
                     *         "embedder_dimension": 768,
                     *         "embedder_precision": "float32",
                     *         "embedder_revision": "78c0197b6159d926",
                     *         "evidence": "token_sums",
                     *         "model": "SmolLM2-135M-Instruct",
                     *         "prompt_shape": "5f0a3c1d9be24786",
                     *         "sampling.max_tokens": 64,
                     *         "sampling.stop": [
                     *           "\n"
                     *         ],
                     *         "sampling.temperature": 0.5,
                     *         "sampling.top_k": 0,
                     *         "sampling.top_p": 1,
                     *         "source": "service",
                     *         "source_label": ""
                     *       },
                     *       "fingerprint_key": "0b9f3f6f4a3f1c2e8d7a6b5c4d3e2f10",
                     *       "id": "cal_01KAJ4B8V3S6X9Z5RYP1D7T0EF",
                     *       "job_id": "job_01KAJ3Z7M2T5W8Y4QXN0C6R9DE",
                     *       "links": {
                     *         "activate": "/calibrations/cal_01KAJ4B8V3S6X9Z5RYP1D7T0EF/activate",
                     *         "data": "/calibrations/cal_01KAJ4B8V3S6X9Z5RYP1D7T0EF/data",
                     *         "report": "/calibrations/cal_01KAJ4B8V3S6X9Z5RYP1D7T0EF/report",
                     *         "self": "/calibrations/cal_01KAJ4B8V3S6X9Z5RYP1D7T0EF"
                     *       },
                     *       "method": "evidence",
                     *       "name": "TriviaQA, November",
                     *       "num_samples": 20,
                     *       "origin": "own",
                     *       "parameters": [
                     *         {
                     *           "depolarization": 0.7,
                     *           "num_samples": 2,
                     *           "temperature": 0.55
                     *         },
                     *         {
                     *           "depolarization": 0.56,
                     *           "num_samples": 20,
                     *           "temperature": 0.92
                     *         }
                     *       ],
                     *       "projection_ece": 0.043,
                     *       "promise": {
                     *         "confidence": 0.9,
                     *         "coverage": 0.42,
                     *         "num_samples": 20,
                     *         "target_error": 0.1,
                     *         "threshold": 0.71
                     *       },
                     *       "raw_projection_ece": 0.214,
                     *       "rows": 300,
                     *       "temperature": 0.92
                     *     }
                     */
                    "application/json": components["schemas"]["CalibrationOut"];
                };
            };
            /** @description Unauthorized */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Forbidden */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Not Found */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Internal Server Error */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Service Unavailable */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    get_data_calibrations__calibration_id__data_get: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Id of a calibration. */
                calibration_id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description JSONL that can be posted to /calibrate again. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /** @example {"id": "0", "prompt": "Who wrote Emma?", "reference": "Jane Austen", "samples": ["Austen", "Eliot"]} */
                    "application/x-ndjson": string;
                };
            };
            /** @description Unauthorized */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Forbidden */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Not Found */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Internal Server Error */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Service Unavailable */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    delete_data_calibrations__calibration_id__data_delete: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Id of a calibration. */
                calibration_id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description Unauthorized */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Forbidden */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Not Found */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Internal Server Error */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Service Unavailable */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    get_report_calibrations__calibration_id__report_get: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Id of a calibration. */
                calibration_id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The fit and its data, the results before and after calibration on held-out folds, and the warnings. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": Record<string, never>;
                    "text/html": string;
                };
            };
            /** @description To the console's sign-in, if a browser sends no valid key. */
            303: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description Unauthorized */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Forbidden */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Not Found */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Internal Server Error */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Service Unavailable */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    patch_rows_calibrations__calibration_id__rows_patch: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Id of a calibration. */
                calibration_id: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["CorrectionsRequest"];
            };
        };
        responses: {
            /** @description Successful Response */
            202: {
                headers: {
                    /** @description Path of the job. */
                    Location?: string;
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "created_at": "2026-11-21T07:00:00Z",
                     *       "done": 120,
                     *       "eta_s": 412,
                     *       "id": "job_01KAJ3Z7M2T5W8Y4QXN0C6R9DE",
                     *       "kind": "calibrate",
                     *       "links": {
                     *         "self": "/jobs/job_01KAJ3Z7M2T5W8Y4QXN0C6R9DE"
                     *       },
                     *       "name": "TriviaQA, November",
                     *       "note": "",
                     *       "refused_rows": 0,
                     *       "stage": "sampling",
                     *       "started_at": "2026-11-21T07:00:01Z",
                     *       "state": "queued",
                     *       "total": 300
                     *     }
                     */
                    "application/json": components["schemas"]["Job"];
                };
            };
            /** @description Unauthorized */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Forbidden */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Not Found */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Conflict */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Request Entity Too Large */
            413: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Unsupported Media Type */
            415: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Unprocessable Entity */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Internal Server Error */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Service Unavailable */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    healthz_health_get: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Health"];
                };
            };
        };
    };
    healthz_healthz_get: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Health"];
                };
            };
        };
    };
    get_jobs_jobs_get: {
        parameters: {
            query?: {
                /** @description Largest number of jobs to return. */
                limit?: number;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example [
                     *       {
                     *         "created_at": "2026-11-21T07:00:00Z",
                     *         "done": 120,
                     *         "eta_s": 412,
                     *         "id": "job_01KAJ3Z7M2T5W8Y4QXN0C6R9DE",
                     *         "kind": "calibrate",
                     *         "links": {
                     *           "self": "/jobs/job_01KAJ3Z7M2T5W8Y4QXN0C6R9DE"
                     *         },
                     *         "name": "TriviaQA, November",
                     *         "note": "",
                     *         "refused_rows": 0,
                     *         "stage": "sampling",
                     *         "started_at": "2026-11-21T07:00:01Z",
                     *         "state": "running",
                     *         "total": 300
                     *       }
                     *     ]
                     */
                    "application/json": components["schemas"]["Job"][];
                };
            };
            /** @description Unauthorized */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Forbidden */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Unprocessable Entity */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Internal Server Error */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Service Unavailable */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    get_job_jobs__job_id__get: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Id of a job. */
                job_id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "created_at": "2026-11-21T07:00:00Z",
                     *       "done": 120,
                     *       "eta_s": 412,
                     *       "id": "job_01KAJ3Z7M2T5W8Y4QXN0C6R9DE",
                     *       "kind": "calibrate",
                     *       "links": {
                     *         "self": "/jobs/job_01KAJ3Z7M2T5W8Y4QXN0C6R9DE"
                     *       },
                     *       "name": "TriviaQA, November",
                     *       "note": "",
                     *       "refused_rows": 0,
                     *       "stage": "sampling",
                     *       "started_at": "2026-11-21T07:00:01Z",
                     *       "state": "running",
                     *       "total": 300
                     *     }
                     */
                    "application/json": components["schemas"]["Job"];
                };
            };
            /** @description Unauthorized */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Forbidden */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Not Found */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Internal Server Error */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Service Unavailable */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    delete_job_jobs__job_id__delete: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Id of a job. */
                job_id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "created_at": "2026-11-21T07:00:00Z",
                     *       "done": 120,
                     *       "eta_s": 412,
                     *       "id": "job_01KAJ3Z7M2T5W8Y4QXN0C6R9DE",
                     *       "kind": "calibrate",
                     *       "links": {
                     *         "self": "/jobs/job_01KAJ3Z7M2T5W8Y4QXN0C6R9DE"
                     *       },
                     *       "name": "TriviaQA, November",
                     *       "note": "",
                     *       "refused_rows": 0,
                     *       "stage": "sampling",
                     *       "started_at": "2026-11-21T07:00:01Z",
                     *       "state": "cancelled",
                     *       "total": 300
                     *     }
                     */
                    "application/json": components["schemas"]["Job"];
                };
            };
            /** @description Unauthorized */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Forbidden */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Not Found */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Conflict */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Internal Server Error */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Service Unavailable */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    post_retry_jobs__job_id__retry_post: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Id of a job. */
                job_id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            202: {
                headers: {
                    /** @description Path of the job. */
                    Location?: string;
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "created_at": "2026-11-21T07:00:00Z",
                     *       "done": 120,
                     *       "eta_s": 412,
                     *       "id": "job_01KAJ3Z7M2T5W8Y4QXN0C6R9DE",
                     *       "kind": "calibrate",
                     *       "links": {
                     *         "self": "/jobs/job_01KAJ3Z7M2T5W8Y4QXN0C6R9DE"
                     *       },
                     *       "name": "TriviaQA, November",
                     *       "note": "",
                     *       "refused_rows": 0,
                     *       "stage": "sampling",
                     *       "started_at": "2026-11-21T07:00:01Z",
                     *       "state": "running",
                     *       "total": 300
                     *     }
                     */
                    "application/json": components["schemas"]["Job"];
                };
            };
            /** @description Unauthorized */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Forbidden */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Not Found */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Conflict */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Internal Server Error */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Service Unavailable */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    get_keys_keys_get: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example [
                     *       {
                     *         "created_at": "2026-11-22T07:35:20.026694Z",
                     *         "expires_at": "2027-11-22T00:00:00Z",
                     *         "id": "key_01M812WMPTKXCAR8GS80VGQ6Y5",
                     *         "name": "nightly evaluation",
                     *         "prefix": "eigencal_UIrBIy",
                     *         "scope": "score",
                     *         "state": "valid"
                     *       }
                     *     ]
                     */
                    "application/json": components["schemas"]["KeyOut"][];
                };
            };
            /** @description Unauthorized */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Forbidden */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Internal Server Error */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Service Unavailable */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    post_key_keys_post: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["KeyRequest"];
            };
        };
        responses: {
            /** @description Successful Response */
            201: {
                headers: {
                    /** @description Path of the key. */
                    Location?: string;
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "created_at": "2026-11-22T07:35:20.026694Z",
                     *       "expires_at": "2027-11-22T00:00:00Z",
                     *       "id": "key_01M812WMPTKXCAR8GS80VGQ6Y5",
                     *       "key": "eigencal_UIrBIy7Ax9c5tAVwfIcNWyLHqPSlFxseKSJU4EIELjU",
                     *       "name": "nightly evaluation",
                     *       "prefix": "eigencal_UIrBIy",
                     *       "scope": "score",
                     *       "state": "valid",
                     *       "warnings": [
                     *         {
                     *           "code": "scope_closed",
                     *           "message": "Scoring, the drop-in and /metrics need a key from now on, permanently. Requests without a key get 401."
                     *         }
                     *       ]
                     *     }
                     */
                    "application/json": components["schemas"]["MadeKey"];
                };
            };
            /** @description Unauthorized */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Forbidden */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Request Entity Too Large */
            413: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Unsupported Media Type */
            415: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Unprocessable Entity */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Internal Server Error */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Service Unavailable */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    delete_key_keys__key_id__delete: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Id of a key. */
                key_id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description Unauthorized */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Forbidden */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Not Found */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Internal Server Error */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Service Unavailable */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    metrics_metrics_get: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "text/plain": string;
                };
            };
            /** @description Unauthorized */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Forbidden */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Service Unavailable */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    readyz_readyz_get: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Ready"];
                };
            };
            /** @description Service Unavailable */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    post_score_score_post: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["ScoreRequest"];
            };
        };
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    /** @description `decision.action`: `answer` (let the text through) or `abstain` (hold it back). The text is the `candidate` or, without one, `answer`. Absent if `decision` is null. */
                    "X-Decision"?: "answer" | "abstain";
                    /** @description `probability_correct` of the `candidate` or, without one, of `answer`. Absent if it is null. */
                    "X-Probability-Correct"?: number;
                    /** @description `id`. */
                    "X-Score-ID"?: string;
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Score"];
                };
            };
            /** @description Unauthorized */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Forbidden */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Not Found */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Request Entity Too Large */
            413: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Unsupported Media Type */
            415: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Unprocessable Entity */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Internal Server Error */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Bad Gateway */
            502: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Service Unavailable */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Gateway Timeout */
            504: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    post_batch_score_batch_post: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["BatchRequest"];
            };
        };
        responses: {
            /** @description One line per item when it is done: `{index, result}` or `{index, error}`. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/x-ndjson": string;
                };
            };
            /** @description Unauthorized */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Forbidden */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Request Entity Too Large */
            413: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Unsupported Media Type */
            415: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Unprocessable Entity */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Internal Server Error */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Service Unavailable */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    get_score_scores__score_id__get: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Id of a score. */
                score_id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["KeptScore"];
                };
            };
            /** @description Unauthorized */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Forbidden */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Not Found */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Internal Server Error */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Service Unavailable */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    chat_completions_v1_chat_completions_post: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": {
                    [key: string]: unknown;
                };
            };
        };
        responses: {
            /** @description The LLM server's response, with the field `uncertainty`: `{id, status}` and the fields of a score, or a `warning` {code, message} that gives the reason for a missing score. In streams, the field is in the chunk that finishes the answer, at the top level and in `delta`, or in the `response` of `response.completed` or `response.incomplete`. The header `X-Score-ID` is the score's id for GET /scores/{id}. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": {
                        [key: string]: unknown;
                    };
                };
            };
            /** @description Error of the LLM server or of the service: `{error: {message, type, param, code}}`. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": {
                        [key: string]: unknown;
                    };
                };
            };
        };
    };
    models_v1_models_get: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The LLM server's list of models. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": {
                        [key: string]: unknown;
                    };
                };
            };
            /** @description Error of the LLM server or of the service: `{error: {message, type, param, code}}`. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": {
                        [key: string]: unknown;
                    };
                };
            };
        };
    };
    responses_v1_responses_post: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": {
                    [key: string]: unknown;
                };
            };
        };
        responses: {
            /** @description The LLM server's response, with the field `uncertainty`: `{id, status}` and the fields of a score, or a `warning` {code, message} that gives the reason for a missing score. In streams, the field is in the chunk that finishes the answer, at the top level and in `delta`, or in the `response` of `response.completed` or `response.incomplete`. The header `X-Score-ID` is the score's id for GET /scores/{id}. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": {
                        [key: string]: unknown;
                    };
                };
            };
            /** @description Error of the LLM server or of the service: `{error: {message, type, param, code}}`. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": {
                        [key: string]: unknown;
                    };
                };
            };
        };
    };
    compact_v1_responses_compact_post: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": {
                    [key: string]: unknown;
                };
            };
        };
        responses: {
            /** @description The LLM server's compaction of the turns. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": {
                        [key: string]: unknown;
                    };
                };
            };
            /** @description Error of the LLM server or of the service: `{error: {message, type, param, code}}`. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": {
                        [key: string]: unknown;
                    };
                };
            };
        };
    };
    post_verify_verify_post: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["VerifyRequest"];
            };
        };
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Verified"];
                };
            };
            /** @description Unauthorized */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Forbidden */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Not Found */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Request Entity Too Large */
            413: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Unsupported Media Type */
            415: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Unprocessable Entity */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Internal Server Error */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Bad Gateway */
            502: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Service Unavailable */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Gateway Timeout */
            504: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
}

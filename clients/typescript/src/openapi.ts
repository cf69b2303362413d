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
         * Where everything is
         * @description Return the paths of the service: JSON unless HTML is preferred.
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
    "/beta/litellm_basic_guardrail_api": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * LiteLLM's guardrail: hold answers back that are not sure enough
         * @description At `request`, begin to draw answers to the chat, which goes on at once; at `response`, judge.
         *
         *     BLOCKED when the decision at the target error (of the settings, or of
         *     `additional_provider_specific_params`) is to abstain. NONE when it is to answer, when no target is set,
         *     and when no score is possible, unless `fail_closed` is true: `X-Eigencal-Reason` and the log say why.
         */
        post: operations["post_guardrail_beta_litellm_basic_guardrail_api_post"];
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
         *     A bad row refuses the whole file: the first 20 are listed by line, field and reason; nothing is stored.
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
         * All calibrations
         * @description Return calibrations, latest first: JSON unless HTML is preferred.
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
         * What was in force when
         * @description Return every activation, newest first: each was in force until the next of its `fingerprint_key`.
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
         * The calibrations in force
         * @description Return one calibration per fingerprint, the service's own set-up first.
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
         * A calibration
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
         * Serve with this calibration
         * @description Serve requests of its fingerprint with this calibration, on every replica; also the way back.
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
         * Its rows with the answers drawn
         * @description Export the rows that the calibration was fitted on.
         */
        get: operations["get_data_calibrations__calibration_id__data_get"];
        put?: never;
        post?: never;
        /**
         * Forget its rows
         * @description Delete the prompts, references and answers for good. The calibration and its report stay.
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
         * Its report: JSON, or a page with the plots
         * @description Return the report in the form that is accepted: JSON unless HTML is preferred.
         *
         *     The report is from the fit, except `now` (whether the calibration is active) and `verdicts` (its rows with
         *     the judged answers; null once the rows are deleted).
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
         * Correct verdicts on its rows
         * @description Start a job that fits another calibration on the same rows and answers, with corrected verdicts.
         *
         *     Nothing is drawn, and this calibration stays as it is. A verdict on a row without `answer` is about its
         *     dominant answer, which the report and the export name. A row that is not there is a 422; rows that were
         *     forgotten are a conflict.
         */
        patch: operations["patch_rows_calibrations__calibration_id__rows_patch"];
        trace?: never;
    };
    "/evaluate": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Reproduce the experiments on labelled prompts
         * @description Check every row of both files, store them, and start a job: fit on dev, test on test.
         *
         *     A bad row in either file refuses both files, and nothing is stored. Nothing is calibrated or activated.
         */
        post: operations["post_evaluate_evaluate_post"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/evaluations/{job_id}/report": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * The report of an evaluation: JSON, or a page with the figures
         * @description Return the report in the form that is accepted: JSON unless HTML is preferred.
         */
        get: operations["get_evaluation_evaluations__job_id__report_get"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
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
         * The same as /healthz, where a router looks for it
         * @description Return ok, whatever the state of the LLM and the store.
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
         * Is the process up?
         * @description Return ok, whatever the state of the LLM and the store.
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
         * The latest jobs
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
         * A job
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
    "/jobs/{job_id}/events": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * A job as it goes on
         * @description Send the job now and whenever it changes, as server-sent events, until it ends.
         */
        get: operations["get_events_jobs__job_id__events_get"];
        put?: never;
        post?: never;
        delete?: never;
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
         * Ask again for what a job lacks
         * @description Queue a failed job again. It continues with the answers that it has and draws none of them twice.
         *
         *     For a job that has succeeded without rows that the LLM server refused, a new job asks for these rows and
         *     makes its own calibration. It is a conflict if nothing is missing, or if the answers were drawn under
         *     other settings.
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
         * All keys that were made
         * @description Return keys, latest first, revoked and expired ones, too; never a key itself.
         */
        get: operations["get_keys_keys_get"];
        put?: never;
        /**
         * Make a key
         * @description Make a key that works at once on every replica, and show it this once.
         *
         *     The first key of a scope closes its routes to callers without one, also when it is revoked later. An admin
         *     key opens scoring, but does not close it.
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
         * @description Revoke a key for good: here at once, on other replicas within seconds. Requests under way go on.
         *
         *     One that was revoked before is 204, too.
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
         * @description Return counts and timings in the Prometheus text format.
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
         * @description Check store, embedder and LLM; 503 names the part that does not work.
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
         * @description Draw answers (or take yours), embed them, and return the spectrum's largest eigenvalue and entropy.
         *
         *     The values are calibrated when a calibration fits this very set-up; otherwise the default calibration
         *     serves them, `calibrated` is false and a warning says why. A `candidate` is judged by the answers; a
         *     `target_error` asks whether to let it, or without one the `answer`, through. With `effort` `none` nothing
         *     is drawn: the `candidate` is judged by its log-probability alone, and there is no spectrum.
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
         * @description Score many prompts; lines come in the order in which they are done, and a bad item fails no other.
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
         * A score by its id
         * @description Return what was answered under this id, from any replica, for as long as the settings keep it.
         *
         *     An hour unless set otherwise, and the latest 10,000. Made under another key, it is not found.
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
         * @description Answer as the LLM server does, and say how uncertain the answer is.
         */
        post: operations["chat_completions_v1_chat_completions_post"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/completions": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Completions
         * @description Complete a text as the LLM server does, and say how uncertain the answer is.
         */
        post: operations["completions_v1_completions_post"];
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
         * Is this answer right? As vLLM's semantic router asks it
         * @description Draw answers to the question and judge the given one by them.
         *
         *     `confidence` is P(correct) by the calibration in force. Where none tells it, 503 `no_probability` says
         *     why: raw values are no probabilities, and are not passed off as such.
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
             * @description When it came into force.
             */
            activated_at: string;
            /**
             * By
             * @description Who activated it: the job's id; `key_…` and its name; `settings key`; `no key` where none was needed; empty for those of before 0.3.0.
             */
            by: string;
            /**
             * Calibration Id
             * @description Id of the calibration.
             */
            calibration_id: string;
            /**
             * Fingerprint Key
             * @description The set-up: one calibration is in force for each.
             */
            fingerprint_key: string;
            /**
             * Reason
             * @description Why; empty for those of before 0.3.0.
             */
            reason: string;
            /**
             * Replaced
             * @description The calibration that was in force until then.
             */
            replaced: string | null;
        };
        /**
         * BatchRequest
         * @description Up to 256 score requests. A bad item gets an error line of its own and fails no other.
         */
        BatchRequest: {
            /**
             * Items
             * @description Score requests, each as for POST /score.
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
             * @description When to serve it: `if_better` than the active one on the same rows.
             * @default if_better
             * @enum {string}
             */
            activate?: "if_better" | "always" | "never";
            /**
             * Compare
             * @description How answers are compared, as of `POST /score`: a calibration holds for one way. Left out: as the service is set up. Claims are compared by `embeddings`.
             * @enum {string}
             */
            compare?: "embeddings" | "llm";
            /**
             * Drawn By
             * @description Who drew the `samples` of the rows; `service`: you vouch that this LLM set-up did.
             * @default caller
             * @enum {string}
             */
            drawn_by?: "caller" | "service";
            /**
             * File
             * Format: binary
             * @description JSONL, JSONL.gz or CSV in UTF-8, rows as `examples` of the JSON form.
             */
            file: string;
            /**
             * Method
             * @description Map to serve. `auto`: the one of lowest cross-validated risk, `evidence` among them where every answer has a log-probability; `both`: the better of the other two.
             * @default auto
             * @enum {string}
             */
            method?: "depolarized" | "temperature" | "evidence" | "both" | "auto";
            /**
             * Name
             * @description A name for people.
             * @default
             */
            name?: string;
            /**
             * Num Samples
             * @description Answers per prompt; left out: as many as a score draws.
             */
            num_samples?: number;
            /**
             * Prior Weight
             * @description Labelled rows that the default calibration counts for, to which fits are drawn; left out: 30; 0: the rows alone, as for claims.
             */
            prior_weight?: number;
            /**
             * Seed
             * @description Seed of folds, subsets and bootstrap.
             * @default 0
             */
            seed?: number;
            /**
             * Source Label
             * @description Names the caller's own set-up; scores of that label fit.
             * @default
             */
            source_label?: string;
            /**
             * Unit
             * @description What scores are calibrated: of whole answers, or of single claims of long ones, by the `claims` of the rows.
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
             * @description When to serve it: `if_better` than the active one on the same rows.
             * @default if_better
             * @enum {string}
             */
            activate?: "if_better" | "always" | "never";
            /**
             * Compare
             * @description How answers are compared, as of `POST /score`: a calibration holds for one way. Left out: as the service is set up. Claims are compared by `embeddings`.
             * @enum {string}
             */
            compare?: "embeddings" | "llm";
            /**
             * Drawn By
             * @description Who drew the `samples` of the rows; `service`: you vouch that this LLM set-up did.
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
             * @description Map to serve. `auto`: the one of lowest cross-validated risk, `evidence` among them where every answer has a log-probability; `both`: the better of the other two.
             * @default auto
             * @enum {string}
             */
            method?: "depolarized" | "temperature" | "evidence" | "both" | "auto";
            /**
             * Name
             * @description A name for people.
             * @default
             */
            name?: string;
            /**
             * Num Samples
             * @description Answers per prompt; left out: as many as a score draws.
             */
            num_samples?: number;
            /**
             * Prior Weight
             * @description Labelled rows that the default calibration counts for, to which fits are drawn; left out: 30; 0: the rows alone, as for claims.
             */
            prior_weight?: number;
            /**
             * Seed
             * @description Seed of folds, subsets and bootstrap.
             * @default 0
             */
            seed?: number;
            /**
             * Source Label
             * @description Names the caller's own set-up; scores of that label fit.
             * @default
             */
            source_label?: string;
            /**
             * Unit
             * @description What scores are calibrated: of whole answers, or of single claims of long ones, by the `claims` of the rows.
             * @default answer
             * @enum {string}
             */
            unit?: "answer" | "claim";
        };
        /**
         * CalibrationOut
         * @description A calibration: immutable but for `active`, `activated_at` and `data_kept`.
         */
        CalibrationOut: {
            /**
             * Activated At
             * @description Since when.
             */
            activated_at: string | null;
            /**
             * Active
             * @description Whether requests of its fingerprint are served with it.
             */
            active: boolean;
            /**
             * Applies Now
             * @description Whether it fits the set-up as it is now: the LLM, its sampling and the embedder; of a caller's own answers, the embedder.
             */
            applies_now: boolean;
            /**
             * Correctness Sample Counts
             * @description Numbers of answers for which it has P(correct) and thresholds; empty where the verdicts on its rows allow none. Its report says why.
             */
            correctness_sample_counts: number[];
            /**
             * Created At
             * Format: date-time
             * @description When it was fitted.
             */
            created_at: string;
            /**
             * Data Kept
             * @description Whether those rows are still there.
             */
            data_kept: boolean;
            /**
             * Depolarization
             * @description Depolarization g there, 0 for `temperature`.
             */
            depolarization: number;
            /**
             * Eps
             * @description Null eigenvalue with which `temperature` was fitted.
             */
            eps: number;
            /**
             * Evidence
             * @description For `evidence`, of every number of answers from 1 on; null for the others.
             */
            evidence: components["schemas"]["EvidenceParametersOut"][] | null;
            /**
             * Fingerprint
             * @description What it is bound to, part by part.
             */
            fingerprint: {
                [key: string]: unknown;
            };
            /**
             * Fingerprint Key
             * @description Short hash of the fingerprint; one is active per key.
             */
            fingerprint_key: string;
            /**
             * Id
             * @description Id of the calibration.
             */
            id: string;
            /**
             * Job Id
             * @description The job that made it.
             */
            job_id: string | null;
            /**
             * Links
             * @description Paths: `self`, `report`, `activate`; `data` while its rows are kept.
             */
            links: {
                [key: string]: string;
            };
            /**
             * Method
             * @description Its map.
             * @enum {string}
             */
            method: "depolarized" | "temperature" | "evidence";
            /**
             * Name
             * @description The name given to it.
             */
            name: string;
            /**
             * Num Samples
             * @description The full number of answers: those drawn per prompt.
             */
            num_samples: number;
            /**
             * Parameters
             * @description For every number of answers from 2 on; for `evidence`, those of answers without log-probabilities.
             */
            parameters: components["schemas"]["ParametersOut"][];
            /**
             * Projection Ece
             * @description Gap between lambda_max and what is found, on held-out rows; null where it was fitted by an earlier release.
             */
            projection_ece: number | null;
            /** @description What a decision with all its answers promises: at the configured target error, or where that cannot be promised or none is set, at the lowest that can be; null where none can. */
            promise: components["schemas"]["PromiseOut"] | null;
            /**
             * Rows
             * @description Rows it was fitted on.
             */
            rows: number;
            /**
             * Temperature
             * @description Matrix temperature T at the full number of answers; for `evidence`, without log-probabilities.
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
             * @description When it was fitted.
             */
            created_at: string;
            /**
             * Depolarization
             * @description Depolarization g applied, 0 for `temperature`; with `evidence`, that of this very score. Null where no answer was drawn.
             */
            depolarization: number | null;
            /**
             * Evidence Intercept
             * @description With `evidence`: a of g = sigmoid(a + b logit u), u the missing mass.
             */
            evidence_intercept?: number | null;
            /**
             * Evidence Slope
             * @description With `evidence`: b.
             */
            evidence_slope?: number | null;
            /**
             * Id
             * @description Id of the calibration.
             */
            id: string;
            /**
             * Kernel
             * @description What it compares answers by: `facts`, what they say; `llm`, that and what the LLM says of each two; `paper`, the cosine of their embeddings.
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
             * @description `own`: fitted for this very set-up. `default`: packaged, for want of such a one.
             * @enum {string}
             */
            origin: "own" | "default";
            /**
             * Temperature
             * @description Matrix temperature T applied; null where no answer was drawn.
             */
            temperature: number | null;
        };
        /**
         * Candidate
         * @description What the answers say of the text given as `candidate`.
         */
        Candidate: {
            /**
             * Mode
             * @description The meaning that it belongs to: which eigenvalue, from 0, the largest; an index into `modes` as far as those go. Null where more of it lies outside of all answers than on any meaning: it says what none of them said; and where no answer was drawn.
             */
            mode: number | null;
            /**
             * Probability
             * @description Its probability by Born's rule under the matrix served, 0..lambda_max. Higher = nearer to what the LLM means. Raw where `calibration` is null; null where no answer was drawn.
             */
            probability: number | null;
            /**
             * Probability Correct
             * @description Probability, 0..1, that the candidate is right. Null in the cases in which the `probability_correct` of the response is null, where `mode` is null, and for a refusal. Unlike `probability`, it rests on verdicts, if there are any: on whether answers to the calibration's questions were right.
             */
            probability_correct: number | null;
        };
        /**
         * Claim
         * @description One claim of a long answer: a sentence, a list item, a row of a table, or a field of JSON.
         */
        Claim: {
            /**
             * Decision
             * @description Let the claim through, or do not, so that of one claim of each answer, taken at random, few of those let through are wrong; null where no calibration of claims can decide.
             */
            decision: ("answer" | "abstain") | null;
            /**
             * Doubtful
             * @description Whether a reader should doubt it: where the `decision` is to abstain; without one, where `probability_correct` is below 0.5; without that, too, where none of the answers drawn agrees. Null where nothing tells.
             */
            readonly doubtful: boolean | null;
            /**
             * End
             * @description Where it ends.
             */
            end: number;
            /**
             * Entropy
             * @description Von Neumann entropy served, nats. Higher = less certain.
             */
            entropy: number | null;
            /**
             * Fact Logprob
             * @description That of the tokens of its numbers and names alone, without those of the question; where it has none, of its other words.
             */
            fact_logprob: number | null;
            /**
             * Lambda Max
             * @description Largest eigenvalue served of what the answers say of it, 0..1. Higher = they agree more. Null where no answer was drawn, as are the next two and `support`.
             */
            lambda_max: number | null;
            /**
             * Least Logprob
             * @description That of the least likely of these tokens.
             */
            least_logprob: number | null;
            /**
             * Logprob
             * @description Log-probability of all its tokens, nats. Higher = more certain. Null where they are not known.
             */
            logprob: number | null;
            /**
             * Probability
             * @description Its probability by Born's rule under the matrix served, 0..lambda_max. Higher = nearer to what the answers mean.
             */
            probability: number | null;
            /**
             * Probability Correct
             * @description Probability that the claim is right, 0..1, by the verdicts on claims of the calibration's rows. Null without such a calibration, and where no answer speaks of the claim.
             */
            probability_correct: number | null;
            /**
             * Rank Score
             * @description A number to sort claims by, 0..1, where no calibration of claims serves: `probability` or, where no answer was drawn, the probability of its least likely token. Higher = more likely right, but no probability of that. Null elsewhere, and where no answer speaks of the claim.
             */
            rank_score: number | null;
            /**
             * Start
             * @description Where it begins in the judged text (of a chat: in that of its choice), in characters (code points).
             */
            start: number;
            /** @description What the answers drawn say of it. */
            support: components["schemas"]["ClaimSupport"] | null;
            /**
             * Text
             * @description What it says, without Markdown's marks; of JSON `path: value`.
             */
            text: string;
        };
        /**
         * ClaimIn
         * @description A claim of a row's answer: its `text` as a score's `claims` have it, and a verdict.
         */
        ClaimIn: {
            /**
             * Correct
             * @description Whether it is right.
             */
            correct: boolean;
            /**
             * Fact Logprob
             * @description As a score's `claims` have it.
             * @default null
             */
            fact_logprob?: number | null;
            /**
             * Least Logprob
             * @description As a score's `claims` have it.
             * @default null
             */
            least_logprob?: number | null;
            /**
             * Logprob
             * @description As a score's `claims` have it: for P(correct) without any answer drawn.
             * @default null
             */
            logprob?: number | null;
            /**
             * Text
             * @description What it says.
             */
            text: string;
        };
        /**
         * ClaimSupport
         * @description How many of the answers drawn say what a claim says.
         */
        ClaimSupport: {
            /**
             * Agree
             * @description Answers that mean the same.
             */
            agree: number;
            /**
             * Differ
             * @description Answers that speak of it and mean something else.
             */
            differ: number;
            /**
             * Example
             * @description What is said instead by an answer that differs, the least like it; null for none.
             */
            example: string | null;
            /**
             * Silent
             * @description Answers that do not speak of it.
             */
            silent: number;
        };
        /**
         * Correction
         * @description A row by its `line` or its `id`, and whether the answer that was judged is right.
         */
        Correction: {
            /**
             * Correct
             * @description Whether the answer that was judged is right.
             */
            correct: boolean;
            /**
             * Id
             * @description Or its id.
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
             * @description When to serve it. Left out: at once where the calibration corrected is the active one, else never.
             * @enum {string}
             */
            activate?: "if_better" | "always" | "never";
            /**
             * Method
             * @description Map to serve; left out: as for the calibration corrected.
             * @enum {string}
             */
            method?: "depolarized" | "temperature" | "evidence" | "both" | "auto";
            /**
             * Name
             * @description A name for people; left out: the same.
             */
            name?: string;
            /**
             * Rows
             * @description What is corrected.
             */
            rows: components["schemas"]["Correction"][];
        };
        /**
         * Decision
         * @description Whether to let a text through, so that few of those let through are wrong.
         */
        Decision: {
            /**
             * Action
             * @description Let it through, or do not.
             * @enum {string}
             */
            action: "answer" | "abstain";
            /**
             * Confidence
             * @description How sure the promise is, 0..1: of calibrations on other questions drawn likewise, at least this share keep every error that they promise for this number of answers, all at once. So `target_error` may be chosen after looking at what is reachable. It says nothing of this one text.
             */
            confidence: number;
            /**
             * Coverage
             * @description Share of the calibration's questions that is let through, 0..1; 0 where none is. Null where the default calibration decides, which promises nothing.
             */
            coverage: number | null;
            /**
             * Reason
             * @description Why, and what to do with the text, for a person.
             */
            reason: string;
            /**
             * Target Error
             * @description Share of wrong ones allowed among those let through.
             */
            target_error: number;
            /**
             * Threshold
             * @description The least P(correct) that is let through; null where the target cannot be promised.
             */
            threshold: number | null;
        };
        /**
         * Disagreement
         * @description What answers say instead of one another.
         */
        Disagreement: {
            /**
             * Kind
             * @description Numbers are compared with those of the same unit, names only between answers that have none in common.
             * @enum {string}
             */
            kind: "number" | "name" | "negation";
            /**
             * Values
             * @description The values by share, largest first, at most ten. The shares need not add up to 1: an answer may say nothing of it.
             */
            values: components["schemas"]["DisagreementValue"][];
        };
        /**
         * DisagreementValue
         * @description What some of the answers say.
         */
        DisagreementValue: {
            /**
             * Share
             * @description Share of the answers with content that say it, 0..1.
             */
            share: number;
            /**
             * Value
             * @description As one of the answers writes it; `negated` or `not negated`.
             */
            value: string;
        };
        /**
         * EvaluateForm
         * @description Two sets of rows as files, options as form fields.
         */
        EvaluateForm: {
            /**
             * Dev
             * Format: binary
             * @description Rows to fit on: JSONL, JSONL.gz or CSV in UTF-8, as for /calibrate.
             */
            dev: string;
            /**
             * Name
             * @description A name for people.
             * @default
             */
            name?: string;
            /**
             * Num Samples
             * @description Answers per prompt; left out: as many as a score draws.
             */
            num_samples?: number;
            /**
             * Seed
             * @description Seed of folds, draws and bootstrap.
             * @default 0
             */
            seed?: number;
            /**
             * Test
             * Format: binary
             * @description Rows to test on.
             */
            test: string;
        };
        /**
         * EvaluateRequest
         * @description Two sets of rows and options as JSON.
         */
        EvaluateRequest: {
            /**
             * Dev
             * @description Labelled rows to fit on.
             */
            dev: components["schemas"]["ExampleIn"][];
            /**
             * Name
             * @description A name for people.
             * @default
             */
            name?: string;
            /**
             * Num Samples
             * @description Answers per prompt; left out: as many as a score draws.
             */
            num_samples?: number;
            /**
             * Seed
             * @description Seed of folds, draws and bootstrap.
             * @default 0
             */
            seed?: number;
            /**
             * Test
             * @description Labelled rows to test on.
             */
            test: components["schemas"]["ExampleIn"][];
        };
        /**
         * Evidence
         * @description What the log-probabilities of the answers say.
         */
        Evidence: {
            /**
             * Mean Logprob
             * @description Mean log-probability of the whole answers, nats. Higher = more certain.
             */
            mean_logprob: number;
            /**
             * Missing Mass
             * @description Mass that the LLM gives to none of the answers, 0..1. Higher = less certain.
             */
            missing_mass: number;
        };
        /**
         * EvidenceParametersOut
         * @description The evidence map served with this number of answers: g = sigmoid(a + b logit u), u the missing mass.
         */
        EvidenceParametersOut: {
            /**
             * Evidence Intercept
             * @description Intercept a.
             */
            evidence_intercept: number;
            /**
             * Evidence Slope
             * @description Slope b, 0 or more; 0: the evidence says nothing.
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
         * @description A labelled row: `prompt` or `messages`, and what a right answer is. A null counts as left out.
         */
        ExampleIn: {
            /**
             * Answer
             * @description The one answer that `correct` is about.
             */
            answer?: string | null;
            /**
             * Answer Logprob
             * @description The natural-log probability of the whole `answer`, its last token included: for P(correct) without any answer drawn.
             */
            answer_logprob?: number | null;
            /**
             * Claims
             * @description Claims of a long answer to the prompt, with verdicts: for `unit` = `claim`.
             */
            claims?: components["schemas"]["ClaimIn"][] | null;
            /**
             * Correct
             * @description Whether `answer`, or else the dominant answer, is right; left out: by its words.
             */
            correct?: boolean | null;
            /**
             * Id
             * @description Your name for the row, unique in the file.
             */
            id?: string | number | null;
            /**
             * Logprob
             * @description Another name of `logprobs`.
             */
            logprob?: number[] | null;
            /**
             * Logprobs
             * @description The natural-log probability of each whole sample, its last token included.
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
             * @description The right answer, or several that are. Rows with `claims` do without. A text that is a list of texts, as JSON, Python or numpy print it, counts as that list.
             */
            reference?: string | string[] | null;
            /**
             * Samples
             * @description Answers already drawn.
             */
            samples?: string[] | null;
            /**
             * Tokens
             * @description Recorded token counts; only the command `evaluate` reads them.
             */
            tokens?: unknown;
            /**
             * Verdict
             * @description Of an export: what was judged, and why; not read. To correct it, add `correct`.
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
             * @description What is said.
             */
            content: string;
            /**
             * Role
             * @description Who speaks.
             * @enum {string}
             */
            role: "system" | "user" | "assistant";
        };
        /**
         * FullSpectrum
         * @description The whole spectrum.
         */
        FullSpectrum: {
            /**
             * Eigenvalues
             * @description Served eigenvalues, descending.
             */
            eigenvalues: number[];
            /**
             * Null Count
             * @description Number of remaining directions.
             */
            null_count: number;
            /**
             * Null Value
             * @description Served eigenvalue of each remaining direction.
             */
            null_value: number;
            /**
             * Uncalibrated
             * @description Eigenvalues as they came, descending, sum 1.
             */
            uncalibrated: number[];
        };
        /**
         * GuardrailCall
         * @description A chat before it goes to the LLM (`request`), or its answer, as far as it has come (`response`).
         */
        GuardrailCall: {
            /**
             * Additional Provider Specific Params
             * @description `target_error`, `confidence`, `effort`, `fail_closed`; others are passed over.
             * @default null
             */
            additional_provider_specific_params?: {
                [key: string]: unknown;
            } | null;
            /**
             * Images
             * @description A chat with images is not scored.
             * @default null
             */
            images?: unknown[] | null;
            /**
             * Input Type
             * @description Which of the two calls it is.
             * @enum {string}
             */
            input_type: "request" | "response";
            /**
             * Litellm Call Id
             * @description The same in both calls of one chat.
             * @default null
             */
            litellm_call_id?: string | null;
            /**
             * Structured Messages
             * @description The chat's messages (`request`).
             * @default null
             */
            structured_messages?: unknown[] | null;
            /**
             * Texts
             * @description The texts; of an answer, the first is judged.
             * @default null
             */
            texts?: unknown[] | null;
            /**
             * Tool Calls
             * @description An answer that calls tools is not scored.
             * @default null
             */
            tool_calls?: unknown[] | null;
            /**
             * Tools
             * @description A chat with tools is not scored.
             * @default null
             */
            tools?: unknown[] | null;
        };
        /**
         * GuardrailVerdict
         * @description What the gateway is to do.
         */
        GuardrailVerdict: {
            /**
             * Action
             * @description Go on, or do not.
             * @enum {string}
             */
            action: "NONE" | "BLOCKED";
            /**
             * Blocked Reason
             * @description Of BLOCKED: why, for a person.
             */
            blocked_reason?: string | null;
        };
        /**
         * Health
         * @description The process is up.
         */
        Health: {
            /**
             * Status
             * @description ok: the process answers.
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
             * @description Whether that one became the active one of its set-up; null before, and of an evaluation.
             */
            activated: boolean | null;
            /**
             * Calibration Id
             * @description The calibration that it made.
             */
            calibration_id: string | null;
            /**
             * Created At
             * Format: date-time
             * @description When it was posted.
             */
            created_at: string;
            /**
             * Decision
             * @description Whether the calibration may be used, in a word or two as its report begins, and why it was activated or not.
             */
            decision: string | null;
            /**
             * Done
             * @description Units of the stage that are done.
             */
            done: number;
            /** @description Why it failed. */
            error: components["schemas"]["JobError"] | null;
            /**
             * Eta S
             * @description Seconds that the stage will still take; null: not known.
             */
            eta_s: number | null;
            /**
             * Finished At
             * @description When it ended.
             */
            finished_at: string | null;
            /**
             * Id
             * @description Id of the job.
             */
            id: string;
            /**
             * Kind
             * @description What it does.
             * @enum {string}
             */
            kind: "calibrate" | "evaluate";
            /**
             * Links
             * @description Paths: `self`, `events`; once it has succeeded `report` and, if any, `calibration`.
             */
            links: {
                [key: string]: string;
            };
            /**
             * Name
             * @description The name given to it.
             */
            name: string;
            /**
             * Note
             * @description What an open job waits for, if it does.
             */
            note: string;
            /**
             * Refused Rows
             * @description Rows that the LLM server refused while it answered others, once the job has ended; retry it to ask for them again.
             */
            refused_rows: number;
            /**
             * Stage
             * @description What a running job is at.
             */
            stage: ("sampling" | "comparing" | "embedding" | "fitting" | "reporting") | null;
            /**
             * Started At
             * @description When it first ran.
             */
            started_at: string | null;
            /**
             * State
             * @description Where it stands; the last three are final, but that a failed job can be retried.
             * @enum {string}
             */
            state: "queued" | "running" | "succeeded" | "failed" | "cancelled";
            /**
             * Total
             * @description Units of the stage in all.
             */
            total: number;
        };
        /**
         * JobError
         * @description Why a job failed.
         */
        JobError: {
            /**
             * Code
             * @description A code of the error table.
             */
            code: string;
            /**
             * Detail
             * @description The same for a person.
             */
            detail: string;
        };
        /**
         * KeptScore
         * @description A score as it was answered, and how far it is; further fields as of POST /score or of the answer.
         */
        KeptScore: {
            /**
             * Id
             * @description Id of this score.
             */
            id: string;
            /**
             * Marks
             * @description Of a chat that asked for them: its `claims`, for the reader. Absent elsewhere.
             */
            marks?: components["schemas"]["Mark"][] | null;
            /**
             * Status
             * @description pending: ask again. scored: with everything that POST /score returned. not_scored, failed: `warning` says why.
             * @enum {string}
             */
            status: "pending" | "scored" | "not_scored" | "failed";
        } & {
            [key: string]: unknown;
        };
        /**
         * KeyOut
         * @description A key, but for the key itself.
         */
        KeyOut: {
            /**
             * Created At
             * Format: date-time
             * @description When it was made.
             */
            created_at: string;
            /**
             * Expires At
             * @description When it ends; null: when it is revoked.
             */
            expires_at: string | null;
            /**
             * Id
             * @description Id of the key.
             */
            id: string;
            /**
             * Name
             * @description The name given to it.
             */
            name: string;
            /**
             * Prefix
             * @description Its first characters, by which to know it.
             */
            prefix: string;
            /**
             * Revoked At
             * @description When it was revoked.
             */
            revoked_at: string | null;
            /**
             * Scope
             * @description What it opens.
             * @enum {string}
             */
            scope: "score" | "admin";
            /**
             * State
             * @description Whether it opens anything: only a valid one does.
             * @enum {string}
             */
            state: "valid" | "expired" | "revoked";
        };
        /**
         * KeyRequest
         * @description A key to be made.
         */
        KeyRequest: {
            /**
             * Expires At
             * Format: date-time
             * @description When it ends: a time to come, with its zone. Without, when it is revoked.
             */
            expires_at?: string;
            /**
             * Name
             * @description Who uses it, for people; need not be unique.
             */
            name: string;
            /**
             * Scope
             * @description score: the scoring routes. admin: these and all others.
             * @enum {string}
             */
            scope: "score" | "admin";
        };
        /**
         * KeyWarning
         * @description What to know about having made a key.
         */
        KeyWarning: {
            /**
             * Code
             * @description scope_closed: it is the first key, and callers without one are now refused.
             */
            code: string;
            /**
             * Message
             * @description The same in words.
             */
            message: string;
        };
        /**
         * MadeKey
         * @description A key that was made now: the only answer that holds the key itself.
         */
        MadeKey: {
            /**
             * Created At
             * Format: date-time
             * @description When it was made.
             */
            created_at: string;
            /**
             * Expires At
             * @description When it ends; null: when it is revoked.
             */
            expires_at: string | null;
            /**
             * Id
             * @description Id of the key.
             */
            id: string;
            /**
             * Key
             * @description The key. It is shown this once and stored nowhere.
             */
            key: string;
            /**
             * Name
             * @description The name given to it.
             */
            name: string;
            /**
             * Prefix
             * @description Its first characters, by which to know it.
             */
            prefix: string;
            /**
             * Revoked At
             * @description When it was revoked.
             */
            revoked_at: string | null;
            /**
             * Scope
             * @description What it opens.
             * @enum {string}
             */
            scope: "score" | "admin";
            /**
             * State
             * @description Whether it opens anything: only a valid one does.
             * @enum {string}
             */
            state: "valid" | "expired" | "revoked";
            /**
             * Warnings
             * @description What to know about having made it.
             */
            warnings: components["schemas"]["KeyWarning"][];
        };
        /**
         * Mark
         * @description A claim in the text of a chat's answer, for the reader of the chat.
         */
        Mark: {
            /**
             * Doubtful
             * @description Whether to show it as doubtful, as of the claim.
             */
            doubtful: boolean | null;
            /**
             * End
             * @description Where it ends.
             */
            end: number;
            /**
             * Start
             * @description Where it begins in the text of the choice, in characters (code points).
             */
            start: number;
            /**
             * Text
             * @description What it says, as of the claim.
             */
            text: string;
            /**
             * Why
             * @description What tells against it, in a reader's words; null where it is not doubtful.
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
             * @description What is said.
             */
            content: string;
            /**
             * Role
             * @description Who speaks.
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
             * @description The sample most aligned with it.
             */
            answer: string;
            /**
             * Probability
             * @description Its served eigenvalue, 0..1.
             */
            probability: number;
            /**
             * Share
             * @description Share of the samples that lie closest to it, 0..1.
             */
            share: number;
        };
        /**
         * ParametersOut
         * @description The parameters served with this number of answers.
         */
        ParametersOut: {
            /**
             * Depolarization
             * @description Depolarization g, 0 for `temperature`.
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
             * @description What went wrong, for a program: stable.
             */
            code: string;
            /**
             * Detail
             * @description What went wrong, for a person.
             */
            detail: string;
            /**
             * Errors
             * @description For invalid requests: each thing wrong.
             * @default null
             */
            errors?: components["schemas"]["ProblemItem"][] | null;
            /**
             * Request Id
             * @description The request's id, also in X-Request-ID.
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
             * @description The HTTP status in words.
             */
            title: string;
            /**
             * Type
             * @description Names the kind of error; the same for every error of one code.
             */
            type: string;
        } & {
            [key: string]: unknown;
        };
        /**
         * ProblemItem
         * @description One thing that is wrong with the request.
         */
        ProblemItem: {
            /**
             * Loc
             * @description Where: body, query or path, then the field.
             */
            loc: (string | number)[];
            /**
             * Msg
             * @description What is wrong there.
             */
            msg: string;
        } & {
            [key: string]: unknown;
        };
        /**
         * PromiseOut
         * @description An error among the answers let through that is kept with this confidence.
         */
        PromiseOut: {
            /**
             * Confidence
             * @description Confidence with which it is kept.
             */
            confidence: number;
            /**
             * Coverage
             * @description Share of the questions that it lets through.
             */
            coverage: number;
            /**
             * Num Samples
             * @description Number of answers per prompt that it is made for.
             */
            num_samples: number;
            /**
             * Target Error
             * @description Share of wrong ones among the answers let through, at most.
             */
            target_error: number;
            /**
             * Threshold
             * @description The least P(correct) that is let through.
             */
            threshold: number;
        };
        /**
         * Ready
         * @description Every part works.
         */
        Ready: {
            /**
             * Parts
             * @description By part: store, embedder, llm.
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
             * @description Stored rows that cannot be read and are skipped: table and id.
             * @default []
             */
            unreadable?: string[];
        };
        /**
         * Root
         * @description Where everything is.
         */
        Root: {
            /**
             * Links
             * @description Paths by what is there.
             */
            links: {
                [key: string]: string;
            };
            /**
             * Name
             * @description What this is.
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
         * @description How the LLM draws answers; what is left out comes from the settings.
         */
        SamplingIn: {
            /**
             * Max Tokens
             * @description Most tokens of an answer.
             */
            max_tokens?: number;
            /**
             * Seed
             * @description Seed passed to the LLM; left out: none. Some servers cannot take one.
             */
            seed?: number;
            /**
             * Stop
             * @description Strings that end an answer.
             */
            stop?: string[];
            /**
             * Temperature
             * @description Sampling temperature; 0 makes all answers equal.
             */
            temperature?: number;
            /**
             * Top K
             * @description Most likely tokens kept; 0: all.
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
         * @description A scored prompt.
         */
        Score: {
            /**
             * Answer
             * @description The sample most aligned with the dominant eigenvector; the `candidate` where no answer was drawn.
             */
            answer: string;
            /**
             * Calibrated
             * @description Whether a calibration of this very set-up was applied. False where the default stood in for one (`calibration.origin`), or nothing did.
             */
            calibrated: boolean;
            /** @description The calibration used, be it the default; null: none, and the values are raw. */
            calibration: components["schemas"]["CalibrationUsed"] | null;
            /** @description The `candidate` judged; null without one. */
            candidate: components["schemas"]["Candidate"] | null;
            /**
             * Claims
             * @description The claims of the `candidate` or, without one, of `answer`, in their order, where it is long or they were asked for: what it says, sentence by sentence. Absent elsewhere.
             */
            claims?: components["schemas"]["Claim"][] | null;
            /** @description The calibration that the claims are served by; null: none. With `claims` alone. */
            claims_calibration?: components["schemas"]["CalibrationUsed"] | null;
            /**
             * Claims Share
             * @description How much of that text is claims, 0..1. The rest is code, headings, questions, greetings and what the user said. With `claims` alone.
             */
            claims_share?: number | null;
            /** @description Whether to let the `candidate` (without a candidate: `answer`) through, so that the target error is kept. Null if no calibration can decide and the request has no `target_error`, unless the answers are refusals. Without a `probability_correct` the decision is to abstain. */
            decision: components["schemas"]["Decision"] | null;
            /**
             * Disagreements
             * @description Where the drawn answers hold different numbers, names or negations. Empty: nowhere. Null where fewer than two answers have content, where they are scored claim by claim, and in chats under EIGENCAL_ABSTAIN.
             */
            disagreements?: components["schemas"]["Disagreement"][] | null;
            /**
             * Embedder
             * @description Embedder of the answers.
             */
            embedder: string;
            /**
             * Entropy
             * @description Von Neumann entropy served, nats. Higher = less certain.
             */
            entropy: number | null;
            /**
             * Entropy Normalized
             * @description Entropy over the largest that the spectrum allows, 0..1.
             */
            entropy_normalized: number | null;
            /** @description What the log-probabilities say; null unless every answer has one. */
            evidence: components["schemas"]["Evidence"] | null;
            /**
             * Id
             * @description Id of this score.
             */
            id: string;
            /**
             * Kernel
             * @description What the answers were compared by, as of `calibration.kernel`.
             */
            kernel?: ("facts" | "llm" | "paper") | null;
            /**
             * Lambda Max
             * @description Largest eigenvalue served, 0..1: the confidence. Higher = more certain. It is how much of their meaning the answers share, not the probability that the answer is right. Null where no answer was drawn (effort `none`), as are the other values of a spectrum.
             */
            lambda_max: number | null;
            /**
             * Model
             * @description Model that answered; null for supplied samples, and for a supplied candidate where no answer was drawn.
             */
            model: string | null;
            /**
             * Modes
             * @description The leading meanings, at most five.
             */
            modes?: components["schemas"]["Mode"][] | null;
            /**
             * Num Distinct
             * @description Distinct ones among them.
             */
            num_distinct: number;
            /**
             * Num Empty
             * @description Answers without text: left out as failed, unless the settings say what they mean.
             */
            num_empty: number;
            /**
             * Num Refusals
             * @description Number of drawn answers without content: refusals, placeholders (null), errors, punctuation, or the question itself. They count in the spectrum. If the judged text is a refusal, or more than half of the answers are, the decision is to abstain, with the warning `refusals`.
             */
            num_refusals: number;
            /**
             * Num Samples
             * @description Answers scored.
             */
            num_samples: number;
            /**
             * Num Truncated
             * @description Answers cut by max_tokens; they count.
             */
            num_truncated: number;
            /**
             * Ood P Value
             * @description Conformal p-value, 0..1, of the hypothesis that the prompt is like the calibration's rows. It compares the question and, if answers were drawn, their mean length. Lower = less alike. Below 0.02 the score has a warning. The smallest possible value is 2 / (rows + 1) by the question and 4 / (rows + 1) by the length, so with fewer than 200 rows the length alone cannot reach 0.02; `length_out_of_range` then warns of lengths that no row has. Null without a calibration, and for calibrations that do not keep the prompts of their rows.
             */
            ood_p_value: number | null;
            /**
             * Probability All Correct
             * @description Probability that every claim of that text is right, 0..1. Null without a calibration of claims that tells. With `claims` alone.
             */
            probability_all_correct?: number | null;
            /**
             * Probability Correct
             * @description Probability that `answer` is right, 0..1, estimated from the verdicts on the calibration's questions; by the default calibration from none (warning `default_probability`). Null without a calibration, if the calibration has no correctness model for this number of answers, if the model needs log-probabilities that are missing, and if `answer` is a refusal.
             */
            probability_correct: number | null;
            /**
             * Rank Score
             * @description A number to sort texts by where the default calibration serves: `probability_correct` of the `candidate` or, without one, of `answer`. Null elsewhere.
             */
            rank_score?: number | null;
            /**
             * Samples
             * @description The answers, in the order drawn.
             */
            samples?: string[] | null;
            /** @description The whole spectrum. */
            spectrum?: components["schemas"]["FullSpectrum"] | null;
            /** @description Where the time went. */
            timings_ms: components["schemas"]["Timings"];
            /** @description The same two numbers without calibration. */
            uncalibrated: components["schemas"]["SpectrumValues"] | null;
            /** @description Tokens used, comparisons included; null where the LLM was not called. */
            usage: components["schemas"]["TokenUsage"] | null;
            /**
             * Warnings
             * @description What to know about this score.
             */
            warnings: components["schemas"]["ScoreWarning"][];
        };
        /**
         * ScoreRequest
         * @description What to score: `prompt` or `messages`, or `samples` already drawn (then `prompt` is optional).
         */
        ScoreRequest: {
            /**
             * Calibration
             * @description `active`, `none` (raw values), or the id of a calibration.
             * @default active
             */
            calibration?: string;
            /**
             * Candidate
             * @description A text to judge by the answers, such as the one about to be sent. It never counts as one of them. A blank one is refused, unless the settings say what empty answers mean.
             */
            candidate?: string;
            /**
             * Candidate Logprob
             * @description The natural-log probability of the whole `candidate`, the token that ended it included, by the LLM that wrote it. It counts where no answer is drawn.
             */
            candidate_logprob?: number;
            /**
             * Candidate Tokens
             * @description The tokens of the `candidate`, in order: what they tell of each of its claims, without any answer drawn. Tokens of another text are not used. Refused if their sum contradicts `candidate_logprob`.
             */
            candidate_tokens?: components["schemas"]["TokenIn"][];
            /**
             * Claims
             * @description Whether to score the `candidate` or, without one, `answer` claim by claim, too. Left out: where it has as many characters as the settings say (400).
             */
            claims?: boolean;
            /**
             * Compare
             * @description How distinct answers are compared: by their `embeddings`, or `llm`: the LLM is also asked of each pair whether both say the same. Left out: as the service is set up.
             * @enum {string}
             */
            compare?: "embeddings" | "llm";
            /**
             * Confidence
             * @description Confidence with which the target is kept; left out: 0.9.
             */
            confidence?: number;
            /**
             * Deadline Ms
             * @description Time for the answers to come; what has come by then is scored (two at least, one by evidence).
             */
            deadline_ms?: number;
            /**
             * Effort
             * @description How many answers to draw, in place of `num_samples`: `low`, `medium` and `high` stand for 3, 8 and 20 of them. More cost more tokens. `none` draws none and costs no token: the `candidate` is judged by its `candidate_logprob`, and there is no spectrum. `auto`: as many as the calibration's report recommends (none only with a `candidate_logprob`), else as `low`.
             * @enum {string}
             */
            effort?: "none" | "low" | "medium" | "high" | "auto";
            /**
             * Logprobs
             * @description The natural-log probability of each whole sample, the token that ended it included: as many as `samples`. Where a sample is only a part of what was drawn, leave this out. (Rows of `POST /calibrate` may call it `logprob`, too; here it has this one name.)
             */
            logprobs?: number[];
            /**
             * Messages
             * @description A conversation, sent to the LLM as it is. The last turn is not the assistant's.
             */
            messages?: components["schemas"]["MessageIn"][];
            /**
             * Model
             * @description Model to ask the LLM server for.
             */
            model?: string;
            /**
             * Num Samples
             * @description Answers to draw. One is enough where a calibration by evidence fits, else two.
             */
            num_samples?: number;
            /**
             * Prompt
             * @description A question; the service puts its prompt format around it.
             */
            prompt?: string;
            /**
             * Return
             * @description Further parts of the answer: what to return.
             * @default [
             *       "modes"
             *     ]
             */
            return?: ("samples" | "modes" | "spectrum")[];
            /**
             * Samples
             * @description Answers already drawn; the LLM is not called. Empty ones are left out, unless the settings say what they mean. One is enough with its log-probability where a calibration by evidence fits, else two.
             */
            samples?: string[];
            /** @description How to draw them. */
            sampling?: components["schemas"]["SamplingIn"];
            /**
             * Source Label
             * @description Who drew `samples`: a calibration fits only its own label.
             */
            source_label?: string;
            /**
             * Target Error
             * @description Share of wrong ones allowed among the answers let through, for `decision`. Left out: that of the settings, else 0.2 where a calibration can decide.
             */
            target_error?: number;
        };
        /**
         * ScoreWarning
         * @description Something the caller should know.
         */
        ScoreWarning: {
            /**
             * Code
             * @description calibration_missing, calibration_mismatch, default_calibration, default_probability, evidence_missing, comparison_missing, partial_samples, truncated_samples, indistinct_answers, no_correctness_model, target_unreachable, unsupported_candidate, correctness_label_mismatch, out_of_distribution, length_out_of_range, refusals, logprobs_of_other_text or claims_left_out.
             */
            code: string;
            /**
             * Differs
             * @description For a mismatch: the parts that differ.
             */
            differs?: string[] | null;
            /**
             * Message
             * @description The same for a person.
             */
            message: string;
        };
        /**
         * SpectrumValues
         * @description The two numbers of a spectrum.
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
         * @description Milliseconds by stage.
         */
        Timings: {
            /**
             * Compare
             * @description Comparing the answers by the LLM, after `embed`; null where it was not asked.
             */
            compare?: number | null;
            /**
             * Embed
             * @description Embedding the distinct answers, and the question.
             */
            embed: number;
            /**
             * Generate
             * @description Drawing the answers; null where none was drawn.
             */
            generate?: number | null;
            /**
             * Queue
             * @description Waiting: for parsing and for a slot at the LLM.
             */
            queue: number;
            /**
             * Spectrum
             * @description Spectrum, calibration and modes.
             */
            spectrum: number;
            /**
             * Total
             * @description All of it.
             */
            total: number;
        };
        /**
         * TokenIn
         * @description A token of the candidate, as chats tell it (`choices[0].logprobs.content`); more of it is ignored.
         */
        TokenIn: {
            /**
             * Logprob
             * @description Its natural-log probability.
             */
            logprob: number;
            /**
             * Token
             * @description Its text.
             */
            token: string;
        };
        /**
         * TokenUsage
         * @description Tokens, as the LLM server counts them.
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
         * @description Whether the answer will do.
         */
        Verified: {
            /**
             * Claims
             * @description The claims of a long answer, as POST /score has them; null of a short one.
             */
            claims?: components["schemas"]["Claim"][] | null;
            /**
             * Confidence
             * @description Calibrated probability that the answer is right, 0..1. It is 0 for a refusal, and for an answer that no drawn answer supports.
             */
            confidence: number;
            /**
             * Samples
             * @description The answers, in the order drawn.
             */
            samples: string[];
            /**
             * Should Escalate
             * @description True if the confidence is below the threshold, if most drawn answers are refusals, or if the question is out of distribution (unless `EIGENCAL_OOD_ABSTAIN` is off).
             */
            should_escalate: boolean;
            /**
             * Threshold
             * @description The threshold that was sent.
             */
            threshold: number;
            /**
             * Total Samples
             * @description How many answers were drawn.
             */
            total_samples: number;
            /**
             * Verified Count
             * @description How many of the answers drawn lie on the mode of the answer: closest to the eigenvector of their density matrix that the answer belongs to, so that they mean the same. 0 where it belongs to none.
             */
            verified_count: number;
        };
        /**
         * VerifyRequest
         * @description An answer that somebody has, and the question that it answers. Further fields are passed over.
         */
        VerifyRequest: {
            /**
             * Answer
             * @description The answer to judge.
             */
            answer: string;
            /**
             * Context
             * @description What the question is asked about: a system message before it.
             * @default null
             */
            context?: string | null;
            /**
             * Question
             * @description The question.
             */
            question: string;
            /**
             * Threshold
             * @description Least confidence that is not to be escalated.
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
            /** @description Paths by what is there: JSON, or a page for people. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Root"];
                    "text/html": string;
                };
            };
        };
    };
    post_guardrail_beta_litellm_basic_guardrail_api_post: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["GuardrailCall"];
            };
        };
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    /** @description Why there is no score to decide by; absent where there is one. */
                    "X-Eigencal-Reason"?: string;
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["GuardrailVerdict"];
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
    post_calibrate_calibrate_post: {
        parameters: {
            query?: never;
            header?: {
                /** @description The same file and options under the same key give the same job. */
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
                     *         "events": "/jobs/job_01KAJ3Z7M2T5W8Y4QXN0C6R9DE/events",
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
            /** @description Latest first: JSON, or a page for people. */
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
                     *           "answer_regex": "",
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
                     *         "rows": 300,
                     *         "temperature": 0.92
                     *       }
                     *     ]
                     */
                    "application/json": components["schemas"]["CalibrationOut"][];
                    "text/html": string;
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
                     *           "answer_regex": "",
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
                     *         "answer_regex": "",
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
                     *         "answer_regex": "",
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
            /** @description JSONL that may be posted to /calibrate again. */
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
            /** @description What was fitted on what, before and after on held-out folds, the curves, the warnings. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": Record<string, never>;
                    "text/html": string;
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
                     *         "events": "/jobs/job_01KAJ3Z7M2T5W8Y4QXN0C6R9DE/events",
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
    post_evaluate_evaluate_post: {
        parameters: {
            query?: never;
            header?: {
                /** @description The same file and options under the same key give the same job. */
                "idempotency-key"?: string | null;
            };
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["EvaluateRequest"];
                "multipart/form-data": components["schemas"]["EvaluateForm"];
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
                     *       "kind": "evaluate",
                     *       "links": {
                     *         "events": "/jobs/job_01KAJ3Z7M2T5W8Y4QXN0C6R9DE/events",
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
    get_evaluation_evaluations__job_id__report_get: {
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
            /** @description Every experiment with its figures, and what could not be run. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": Record<string, never>;
                    "text/html": string;
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
                /** @description How many at most. */
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
                     *           "events": "/jobs/job_01KAJ3Z7M2T5W8Y4QXN0C6R9DE/events",
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
                     *         "events": "/jobs/job_01KAJ3Z7M2T5W8Y4QXN0C6R9DE/events",
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
                     *         "events": "/jobs/job_01KAJ3Z7M2T5W8Y4QXN0C6R9DE/events",
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
    get_events_jobs__job_id__events_get: {
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
            /** @description Events named `job`, each with the whole job; the last has its final state. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "text/event-stream": string;
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
                     *         "events": "/jobs/job_01KAJ3Z7M2T5W8Y4QXN0C6R9DE/events",
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
                     *           "message": "Scoring, the drop-in and /metrics need a key from now on, for good: without one it is 401."
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
                    /** @description Id of the calibration used; absent without one. */
                    "X-Calibration-ID"?: string;
                    /** @description `candidate.probability`; absent without a candidate, or where no answer was drawn. */
                    "X-Candidate-Probability"?: number;
                    /** @description `decision.action`: `answer`, let the text through, or `abstain`, hold it back. The text is the `candidate` or, without one, `answer`. Absent where `decision` is null. */
                    "X-Decision"?: "answer" | "abstain";
                    /** @description `entropy`; absent where no answer was drawn. */
                    "X-Entropy"?: number;
                    /** @description `lambda_max`; absent where no answer was drawn. */
                    "X-Lambda-Max"?: number;
                    /** @description `probability_correct` of the `candidate` or, without one, of `answer`; absent where null. */
                    "X-Probability-Correct"?: number;
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
            /** @description A line for each item as it is done: `{index, result}` or `{index, error}`. */
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
            /** @description As the LLM server answers, with `uncertainty` beside it: `{id, status}`, and the fields of a score, or a `warning` {code, message} that says why there is none. Streamed, it is on the chunk that finishes the answer, at the top and in `delta`. `X-Score-ID` names the score for GET /scores/{id}. */
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
            /** @description What the LLM server, or the service, says went wrong: `{error: {message, type, param, code}}`. */
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
    completions_v1_completions_post: {
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
            /** @description As the LLM server answers, with `uncertainty` beside it: `{id, status}`, and the fields of a score, or a `warning` {code, message} that says why there is none. Streamed, it is on the chunk that finishes the answer, at the top and in `delta`. `X-Score-ID` names the score for GET /scores/{id}. */
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
            /** @description What the LLM server, or the service, says went wrong: `{error: {message, type, param, code}}`. */
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
            /** @description As the LLM server lists its models. */
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
            /** @description What the LLM server, or the service, says went wrong: `{error: {message, type, param, code}}`. */
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

// Calibrate: choose rows, see their faults, follow the job, read its verdict.
import type { JSX } from "preact";
import { useEffect, useId, useRef, useState } from "preact/hooks";
import { call, type Failure, follow, isOver, request, type Job, type Report } from "./api";
import { go } from "./router";
import { check, FEW_ROWS, refused, textOf, type Checked } from "./rows";
import { S } from "./strings";
import { Await, Confirm, Faults, Field, Trouble, useLoaded, useSay, View } from "./ui";

type Chosen = { name: string; content: Blob; checked: Checked; at: number };

export function Calibrate(): JSX.Element {
  const [chosen, setChosen] = useState<Chosen | undefined>();
  // The service checks the rows again, and decides.
  const [isForced, setForced] = useState(false);
  const choose = (next: Chosen | undefined) => (setChosen(next), setForced(false));
  const jobs = useLoaded(() => call<Job[]>("/jobs?limit=20"), []);
  return (
    <View title={S.calibrate.title} lead={S.calibrate.lead}>
      <div class="panel">
        <FileRows onChosen={choose} />
        {chosen && <Checks checked={chosen.checked} name={chosen.name} />}
        {chosen && (chosen.checked.faults.length === 0 || isForced) && <Start key={chosen.at} chosen={chosen} />}
        {chosen && chosen.checked.faults.length > 0 && !isForced && (
          <p class="buttons">
            <button type="button" onClick={() => setForced(true)}>
              {S.calibrate.force}
            </button>
          </p>
        )}
      </div>
      <section aria-labelledby="jobs">
        <h2 id="jobs">{S.calibrate.jobs}</h2>
        <Await loaded={jobs}>
          {(list) =>
            list.length === 0 ? (
              <p class="muted">{S.calibrate.noJobs}</p>
            ) : (
              <ul class="history">
                {list.map((job) => (
                  <li>
                    <a href={`#/calibrate/${job.id}`}>
                      <span class="cut">{job.name || job.id}</span>
                      <span>{S.calibrate.states[job.state]}</span>
                      <time dateTime={job.created_at}>{S.when(job.created_at)}</time>
                    </a>
                  </li>
                ))}
              </ul>
            )
          }
        </Await>
      </section>
    </View>
  );
}

function FileRows(props: { onChosen: (chosen: Chosen | undefined) => void }): JSX.Element {
  const [isOver, setOver] = useState(false);
  const id = useId();
  const latest = useRef<File | undefined>(undefined);
  useEffect(() => () => void (latest.current = undefined), []);
  const take = async (file: File | undefined) => {
    if (!file) return;
    latest.current = file;
    props.onChosen(undefined);
    let content = new Blob(); // a copy: a browser does not send a file that has changed since it was chosen
    const read = async () => textOf((content = new Blob([await file.arrayBuffer()])));
    const checked = await read().then(check, (error: Error) => refused(error.message));
    if (latest.current === file) props.onChosen({ name: file.name, content, checked, at: Date.now() });
  };
  return (
    <div
      class={`drop ${isOver ? "over" : ""}`}
      onDragOver={(event) => (event.preventDefault(), setOver(true))}
      onDragLeave={() => setOver(false)}
      onDrop={(event) => {
        event.preventDefault();
        setOver(false);
        void take(event.dataTransfer?.files[0]);
      }}
    >
      <label for={id}>{S.calibrate.drop}</label>
      <input
        id={id}
        type="file"
        accept=".jsonl,.ndjson,.json,.csv"
        onChange={(event) => {
          void take(event.currentTarget.files?.[0]);
          event.currentTarget.value = ""; // the same file may have been mended
        }}
      />
      <p class="small muted">{S.calibrate.format}</p>
    </div>
  );
}

function Checks(props: { checked: Checked; name: string }): JSX.Element {
  const { checked } = props;
  if (checked.faults.length)
    return (
      <div class="note bad" role="alert">
        <p>{S.calibrate.bad(props.name)}</p>
        <Faults faults={checked.faults} />
        {checked.moreFaults > 0 && <p>{S.calibrate.moreFaults(checked.moreFaults)}</p>}
      </div>
    );
  return (
    <div class="note good" role="status">
      <p>{S.calibrate.good(props.name, checked.count, checked.withAnswers, checked.labelled)}</p>
      {checked.count < FEW_ROWS && <p>{S.calibrate.few(checked.count, FEW_ROWS)}</p>}
    </div>
  );
}

function Start(props: { chosen: Chosen }): JSX.Element {
  const { chosen } = props;
  const [name, setName] = useState(S.cut(chosen.name.replace(/\.(jsonl|ndjson|json|csv)$/, "")));
  const [count, setCount] = useState(0);
  const [label, setLabel] = useState("");
  const [drawnBy, setDrawnBy] = useState<"caller" | "service">("caller");
  const [activate, setActivate] = useState<"if_better" | "always" | "never">("if_better");
  const [error, setError] = useState<unknown>();
  const [isSending, setSending] = useState(false);
  const start = async (event: Event) => {
    event.preventDefault();
    const form = new FormData();
    form.set("file", chosen.content, "rows");
    form.set("name", name);
    form.set("activate", activate);
    if (chosen.checked.areClaims) form.set("unit", "claim");
    if (chosen.checked.withAnswers) form.set("drawn_by", drawnBy);
    if (chosen.checked.withAnswers && drawnBy === "caller") form.set("source_label", label);
    if (count) form.set("num_samples", String(count));
    setSending(true);
    setError(undefined);
    try {
      const job: Job = await (await request("/calibrate", { method: "POST", body: form })).json();
      go(`/calibrate/${job.id}`);
    } catch (failure) {
      setError(failure);
      setSending(false);
    }
  };
  return (
    <form onSubmit={start}>
      <div class="row">
        <Field label={S.calibrate.name}>
          {(ids) => <input {...ids} type="text" maxLength={200} value={name} onInput={(e) => setName(e.currentTarget.value)} />}
        </Field>
        <Field label={S.calibrate.count} hint={S.calibrate.countHow}>
          {(ids) => (
            <input
              {...ids}
              type="number"
              min={2}
              max={256}
              value={count || ""}
              onInput={(e) => setCount(e.currentTarget.valueAsNumber || 0)}
            />
          )}
        </Field>
        {chosen.checked.withAnswers > 0 && (
          <Field label={S.calibrate.drawnBy} hint={S.calibrate.drawnByMeans}>
            {(ids) => (
              <select {...ids} value={drawnBy} onChange={(e) => setDrawnBy(e.currentTarget.value as typeof drawnBy)}>
                <option value="caller">{S.calibrate.byCaller}</option>
                <option value="service">{S.calibrate.byService}</option>
              </select>
            )}
          </Field>
        )}
        {chosen.checked.withAnswers > 0 && drawnBy === "caller" && (
          <Field label={S.calibrate.sourceLabel} hint={S.calibrate.sourceLabelMeans}>
            {(ids) => <input {...ids} type="text" maxLength={200} value={label} onInput={(e) => setLabel(e.currentTarget.value)} />}
          </Field>
        )}
        <Field label={S.calibrate.activate}>
          {(ids) => (
            <select {...ids} value={activate} onChange={(e) => setActivate(e.currentTarget.value as typeof activate)}>
              <option value="if_better">{S.calibrate.ifBetter}</option>
              <option value="never">{S.calibrate.never}</option>
              <option value="always">{S.calibrate.always}</option>
            </select>
          )}
        </Field>
      </div>
      {error !== undefined && <Trouble error={error} />}
      <button type="submit" class="primary" disabled={isSending}>
        {chosen.checked.faults.length ? S.calibrate.startAnyway : S.calibrate.start(chosen.checked.count)}
      </button>
    </form>
  );
}

const STAGES = ["sampling", "embedding", "comparing", "checking", "fitting", "reporting"] as const;

type Followed = { job: Job | null; lost: JSX.Element | null };

/** Follow a job; null while it is loading. lost: a note while the job is not followed. */
function useJob(id: string): Followed {
  const [state, setState] = useState<Followed>({ job: null, lost: null });
  useEffect(() => {
    setState({ job: null, lost: null });
    const note = (failure?: Failure) => (failure ? <Trouble error={failure} /> : <p class="note bad">{S.calibrate.lost}</p>);
    return follow(
      id,
      (job) => setState({ job, lost: null }),
      (failure) => setState((last) => ({ ...last, lost: note(failure) })),
    );
  }, [id]);
  return state;
}

export function JobView(props: { id: string }): JSX.Element {
  const { job, lost } = useJob(props.id);
  const [isCancelling, setCancelling] = useState(false);
  const [error, setError] = useState<unknown>();
  const say = useSay();
  useEffect(() => {
    if (job) say(S.calibrate.states[job.state]);
  }, [job?.state]);
  const retry = async () => {
    try {
      const again = await call<Job>(`/jobs/${props.id}/retry`, "POST");
      if (again.id === props.id) location.reload();
      else go(`/calibrate/${again.id}`);
    } catch (failure) {
      setError(failure);
    }
  };
  return (
    <View title={job?.name || S.calibrate.job}>
      {lost}
      {!job && !lost && <p class="muted">{S.loading}</p>}
      {error !== undefined && <Trouble error={error} />}
      {job && (
        <div class="panel">
          <Progress job={job} />
          {!isOver(job) && (
            <p class="buttons">
              <button type="button" onClick={() => setCancelling(true)}>
                {S.calibrate.cancel}
              </button>
              <span class="muted">{S.calibrate.leave}</span>
            </p>
          )}
          {(job.state === "failed" || job.refused_rows > 0) && (
            <p class="buttons">
              <button type="button" onClick={retry}>
                {S.calibrate.retry}
              </button>
            </p>
          )}
        </div>
      )}
      {isCancelling && (
        <Confirm
          title={S.calibrate.cancelTitle}
          action={S.calibrate.cancel}
          leave={S.calibrate.keepRunning}
          isDangerous
          run={async () => void (await call(`/jobs/${props.id}`, "DELETE"))}
          close={() => setCancelling(false)}
        >
          <p>{S.calibrate.cancelMeans}</p>
        </Confirm>
      )}
      {job?.calibration_id && <Outcome id={job.calibration_id} decision={job.decision ?? ""} />}
    </View>
  );
}

function Progress(props: { job: Job }): JSX.Element {
  const { job } = props;
  const at = job.stage === null ? -1 : STAGES.indexOf(job.stage);
  // Only jobs that compare answers by the LLM have that stage.
  const stages = STAGES.filter((stage) => stage !== "comparing" || job.stage === "comparing");
  return (
    <>
      <p>
        <strong>{S.calibrate.states[job.state]}</strong> {job.note}
      </p>
      {job.error && (
        <p class="note bad" role="alert">
          {job.error.detail} <code>{job.error.code}</code>
        </p>
      )}
      {job.refused_rows > 0 && <p class="note warn">{S.calibrate.refused(job.refused_rows)}</p>}
      {!isOver(job) && (
        <ol class="stages">
          {stages.map((stage) => {
            const index = STAGES.indexOf(stage);
            const isNow = index === at;
            return (
              <li class={index < at ? "done" : isNow ? "now" : ""} aria-current={isNow ? "step" : undefined}>
                <label>
                  {S.calibrate.stages[stage]}
                  {isNow && job.total > 0 && ` ${S.calibrate.of(job.done, job.total)}`}
                  {isNow && job.eta_s !== null && ` · ${S.calibrate.eta(job.eta_s)}`}
                  <progress max={isNow ? Math.max(job.total, 1) : 1} value={index < at ? 1 : isNow ? job.done : 0} />
                </label>
              </li>
            );
          })}
        </ol>
      )}
    </>
  );
}

function Outcome(props: { id: string; decision: string }): JSX.Element {
  const report = useLoaded(() => call<Report>(`/calibrations/${props.id}/report`), [props.id]);
  return (
    <Await loaded={report}>
      {(value) => (
        <>
          <Opening report={value} />
          <p class="buttons">
            <a class="button primary" href={`#/calibrations/${props.id}`}>
              {S.calibrate.open}
            </a>
            {value.calibration.fingerprint.unit !== "claim" && (
              <a class="button" href={`#/label/${props.id}`}>
                {S.calibrate.look}
              </a>
            )}
          </p>
        </>
      )}
    </Await>
  );
}

/** The verdict on a calibration in a word, with reasons, and what would change it. */
export function Opening(props: { report: Report }): JSX.Element {
  const { opening } = props.report;
  const tone = opening.verdict.startsWith("Use it.") ? "good" : opening.verdict.startsWith("Use it") ? "plain" : "bad";
  return (
    <div class={`verdict ${tone}`}>
      <p class="word">{opening.verdict}</p>
      <ul>
        <li>{opening.safe}</li>
        <li>{opening.promise}</li>
        {opening.answers && <li>{opening.answers}</li>}
      </ul>
      {opening.change && <p class="sentence">{opening.change.text}</p>}
      <p>{props.report.decision.reason}</p>
    </div>
  );
}


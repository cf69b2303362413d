// Ten verdicts: ask ten questions of one's own, judge the answers, and see how the probability moves.
import type { JSX } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { call, type Calibration, follow, isOver, type Job, type Score } from "./api";
import { S } from "./strings";
import { Await, Choice, Field, Trouble, useLoaded, useSay } from "./ui";

const ENOUGH = 10; // minimum verdicts for a calibration
const KEPT = "eigencal-ten";

type Row = { prompt: string; answer: string; before: number | null; correct?: boolean; after?: number | null };
type Ten = { text: string; rows: Row[]; job?: string };

/** Return the questions and verdicts of this session, which leaving the page must not lose. */
function kept(): Ten {
  try {
    return JSON.parse(sessionStorage.getItem(KEPT) ?? "") as Ten;
  } catch {
    return { text: "", rows: [] };
  }
}

function keep(ten: Ten): void {
  try {
    sessionStorage.setItem(KEPT, JSON.stringify(ten));
  } catch {
    // The storage is full or closed to this page: they are kept until it is left.
  }
}

/** Return a question without case and additional white space: copies count once. */
const plain = (question: string): string => question.toLowerCase().trim().split(/\s+/).join(" ");

const QUIET_MS = 2000;

/** The panel, or the progress of a job before any calibration applies. */
export function TenVerdicts(): JSX.Element {
  const state = useLoaded(async () => {
    const isKnown = (await call<Calibration[]>("/calibrations/active")).some((one) => one.applies_now);
    return { isKnown, open: isKnown ? undefined : (await call<Job[]>("/jobs?limit=20")).findLast((job) => !isOver(job)) };
  }, []);
  useEffect(() => {
    if (state.value === undefined || state.value.isKnown) return;
    const timer = setTimeout(state.reload, QUIET_MS);
    return () => clearTimeout(timer);
  }, [state.value, state.error]);
  return (
    <section class="panel" aria-labelledby="ten">
      <h2 id="ten">{S.ten.title}</h2>
      <Await loaded={state}>
        {({ isKnown, open }) =>
          isKnown ? (
            <Judging />
          ) : open ? (
            <p>
              {S.ten.working} <a href={`#/calibrate/${open.id}`}>{S.ten.progress(open.name || open.id, open.done, open.total)}</a>
            </p>
          ) : (
            <p>{S.ten.unknown}</p>
          )
        }
      </Await>
    </section>
  );
}

function Judging(): JSX.Element {
  const [ten, setTen] = useState<Ten>(kept);
  const [error, setError] = useState<unknown>();
  const [isBusy, setBusy] = useState(false);
  const [job, setJob] = useState<Job | undefined>();
  const leaving = useRef(new AbortController());
  const say = useSay();
  useEffect(() => () => leaving.current.abort(), []);
  useLayoutEffect(() => keep(ten), [ten]); // what is shown is kept, even if the page is left at once

  const change = (prompt: string, part: Partial<Row>) =>
    setTen((last) => ({ ...last, rows: last.rows.map((row) => (row.prompt === prompt ? { ...row, ...part } : row)) }));
  const score = (prompt: string) => call<Score>("/score", "POST", { prompt }, leaving.current.signal);

  /** Do some work with the buttons off, and show why it failed. */
  const busy = async (work: () => Promise<void>) => {
    setBusy(true);
    setError(undefined);
    try {
      await work();
    } catch (failure) {
      if (!leaving.current.signal.aborted) setError(failure);
    } finally {
      setBusy(false);
    }
  };
  const ask = (event: Event) => {
    event.preventDefault();
    void busy(async () => {
      const known = new Set(ten.rows.map((row) => plain(row.prompt)));
      for (const prompt of ten.text.split("\n").map((line) => line.trim())) {
        if (!prompt || known.has(plain(prompt))) continue;
        known.add(plain(prompt));
        say(S.ten.asking(prompt));
        const { answer, probability_correct: before } = await score(prompt);
        setTen((last) => ({ ...last, rows: [...last.rows, { prompt, answer, before }] }));
      }
      say(S.ten.judge);
    });
  };
  const judged = ten.rows.filter((row) => row.correct !== undefined);
  const fit = () =>
    busy(async () => {
      const examples = judged.map(({ prompt, answer, correct }) => ({ prompt, answer, correct }));
      const { id } = await call<Job>("/calibrate", "POST", { examples, name: S.ten.name(examples.length) });
      setTen((last) => ({ ...last, job: id, rows: last.rows.map(({ after: _, ...row }) => row) }));
    });
  const move = () =>
    busy(async () => {
      for (const { prompt } of ten.rows) change(prompt, { after: (await score(prompt)).probability_correct });
    });

  useEffect(() => {
    setJob(undefined);
    if (ten.job === undefined) return;
    return follow(ten.job, setJob, (failure) => {
      if (failure) setTen((last) => ({ ...last, job: undefined })); // such as of another service
    });
  }, [ten.job]);
  useEffect(() => {
    if (job) say(S.calibrate.states[job.state]);
  }, [job?.state]);
  useEffect(() => {
    if (job?.state === "succeeded" && !isBusy && error === undefined && ten.rows.some((row) => row.after === undefined)) void move();
  }, [job?.state, isBusy, error]);

  return (
    <>
      <p>{S.ten.how}</p>
      <form onSubmit={ask}>
        <Field label={S.ten.questions} hint={S.ten.oneALine}>
          {(ids) => (
            <textarea
              {...ids}
              rows={ten.rows.length ? 3 : 6}
              required
              value={ten.text}
              onInput={(event) => {
                const text = event.currentTarget.value;
                setTen((last) => ({ ...last, text })); // answers may arrive while one types
              }}
            />
          )}
        </Field>
        <p class="buttons">
          <button type="submit" disabled={isBusy}>
            {S.ten.ask}
          </button>
        </p>
      </form>
      {error !== undefined && <Trouble error={error} />}
      {ten.rows.length > 0 && (
        <ol class="ten">
          {ten.rows.map((row, at) => (
            <li>
              <p class="asked" dir="auto">
                {row.prompt}
              </p>
              <blockquote dir="auto">{row.answer}</blockquote>
              <p class="small muted">{S.ten.moved(row.before, row.after)}</p>
              <Choice
                legend={S.ten.verdict(at + 1)}
                value={row.correct === undefined ? "" : row.correct ? "right" : "wrong"}
                options={[
                  ["right", S.right],
                  ["wrong", S.wrong],
                ]}
                onChange={(verdict) => change(row.prompt, { correct: verdict === "right" })}
              />
            </li>
          ))}
        </ol>
      )}
      {ten.rows.length > 0 && (
        <p class="buttons">
          <button type="button" class="primary" disabled={isBusy || judged.length < ENOUGH} onClick={fit}>
            {S.ten.fit}
          </button>
          <button type="button" disabled={isBusy} onClick={() => setTen({ text: "", rows: [] })}>
            {S.ten.clear}
          </button>
          <span class="muted">{S.ten.count(judged.length, ENOUGH)}</span>
        </p>
      )}
      {job && <Outcome job={job} rows={ten.rows} />}
    </>
  );
}

function Outcome(props: { job: Job; rows: Row[] }): JSX.Element {
  const { job } = props;
  const both = props.rows.filter((row) => row.before !== null && typeof row.after === "number");
  const mean = (values: number[]) => values.reduce((sum, value) => sum + value, 0) / values.length;
  return (
    <div class={`note ${job.activated ? "good" : job.error ? "bad" : ""}`} role="status">
      <p>
        <a href={`#/calibrate/${job.id}`}>{S.calibrate.states[job.state]}</a> {job.note}
      </p>
      {job.error && <p>{job.error.detail}</p>}
      {job.decision && <p>{job.decision}</p>}
      {both.length > 0 && (
        <p>
          <strong>{S.ten.mean(mean(both.map((row) => row.before!)), mean(both.map((row) => row.after!)))}</strong>
        </p>
      )}
    </div>
  );
}

// Label: correct the verdicts of a calibration's rows by keyboard.
import type { JSX } from "preact";
import { useEffect, useLayoutEffect, useReducer, useState } from "preact/hooks";
import { call, type Calibration, type Job, type Report, type VerdictRow } from "./api";
import { go } from "./router";
import { S } from "./strings";
import { Await, Trouble, useLoaded, View } from "./ui";

/** Choose a calibration to label. */
export function LabelChoice(): JSX.Element {
  const loaded = useLoaded(() => call<Calibration[]>("/calibrations"), []);
  return (
    <View title={S.label.title} lead={S.label.lead}>
      <Await loaded={loaded}>
        {(list) => {
          const kept = list.filter((calibration) => calibration.data_kept && calibration.fingerprint.unit !== "claim");
          return kept.length === 0 ? (
            <div class="panel empty">
              <p>{S.label.none}</p>
              <a class="button primary" href="#/calibrate">
                {S.calibrations.first}
              </a>
            </div>
          ) : (
            <ul class="history">
              {kept.map((calibration) => (
                <li>
                  <a href={`#/label/${calibration.id}`}>
                    <span class="cut">{calibration.name || calibration.id}</span>
                    <span>{S.calibrations.rowsOf(calibration.rows, calibration.num_samples)}</span>
                    <time dateTime={calibration.created_at}>{S.when(calibration.created_at)}</time>
                  </a>
                </li>
              ))}
            </ul>
          );
        }}
      </Await>
    </View>
  );
}

export function Label(props: { id: string }): JSX.Element {
  const loaded = useLoaded(() => call<Report>(`/calibrations/${props.id}/report`), [props.id]);
  return (
    <View title={S.label.title} lead={S.label.how}>
      <Await loaded={loaded}>
        {(report) =>
          report.verdicts === null || report.verdicts.rows.length === 0 ? (
            <p class="note">
              {report.calibration.fingerprint.unit === "claim" ? S.label.ofClaims : S.calibrations.forgotten}
            </p>
          ) : (
            <Rows key={props.id} report={report} rows={report.verdicts.rows} count={report.verdicts.count} />
          )
        }
      </Await>
    </View>
  );
}

type Step = "right" | "wrong" | "skip" | "back";
const STEPS: Record<string, Step> = { y: "right", n: "wrong", s: "skip", u: "back" };
type Labelling = { at: number; verdicts: ReadonlyMap<number, boolean> };

const keyOf = (id: string): string => `eigencal-verdicts-${id}`;

/** Return the verdicts given in this session, which leaving the page must not lose. */
function keptFor(id: string): Labelling {
  try {
    const kept = JSON.parse(sessionStorage.getItem(keyOf(id)) ?? '{"at": 0, "verdicts": []}');
    return { at: kept.at, verdicts: new Map(kept.verdicts) };
  } catch {
    return { at: 0, verdicts: new Map() };
  }
}

function keepFor(id: string, { at, verdicts }: Labelling): void {
  try {
    sessionStorage.setItem(keyOf(id), JSON.stringify({ at, verdicts: [...verdicts] }));
  } catch {
    // The storage is full or closed to this page: the verdicts are kept until it is left.
  }
}

/** Return the function that gives the row in view a verdict and moves on. Keys may come faster than the page draws. */
const stepIn =
  (rows: VerdictRow[]) =>
  ({ at, verdicts }: Labelling, step: Step): Labelling => {
    const row = rows[at];
    if (step === "back") return { at: Math.max(0, at - 1), verdicts };
    if (!row) return { at, verdicts };
    const next = new Map(verdicts);
    if (step === "skip") next.delete(row.line);
    else next.set(row.line, step === "right");
    return { at: at + 1, verdicts: next };
  };

function Rows(props: { report: Report; rows: VerdictRow[]; count: number }): JSX.Element {
  const { report, rows } = props;
  const [{ at, verdicts }, take] = useReducer(stepIn(rows), report.calibration.id, keptFor);
  useLayoutEffect(() => keepFor(report.calibration.id, { at, verdicts }), [at, verdicts]);
  const [error, setError] = useState<unknown>();
  const [isSending, setSending] = useState(false);
  const row = rows[at];
  const changed = [...verdicts].filter(([line, correct]) => rows.find((other) => other.line === line)?.correct !== correct);

  useEffect(() => {
    const pressed = (event: KeyboardEvent) => {
      const isTyping = event.target instanceof Element && event.target.closest("input, textarea, select, dialog");
      const step = STEPS[event.key.toLowerCase()];
      if (!step || isTyping || event.repeat || event.ctrlKey || event.metaKey || event.altKey || isSending) return;
      event.preventDefault();
      take(step);
    };
    addEventListener("keydown", pressed);
    return () => removeEventListener("keydown", pressed);
  }, [isSending]);
  const fit = async () => {
    const { id, name } = report.calibration;
    setSending(true);
    try {
      setError(undefined);
      const taken = (await call<Calibration[]>("/calibrations")).map((other) => other.name);
      const sent = {
        rows: changed.map(([line, correct]) => ({ line, correct })),
        name: S.label.corrected(name || id, taken),
        activate: "never",
      };
      go(`/calibrate/${(await call<Job>(`/calibrations/${id}/rows`, "PATCH", sent)).id}`);
    } catch (failure) {
      setError(failure);
      setSending(false);
    }
  };

  const back = (
    <button type="button" disabled={at === 0 || isSending} onClick={() => take("back")}>
      {S.label.back} <kbd>u</kbd>
    </button>
  );
  return (
    <>
      <p role="status">{S.label.progress(Math.min(at + 1, rows.length), rows.length, changed.length)}</p>
      {props.count > rows.length && <p class="muted">{S.label.first(rows.length, props.count)}</p>}
      {row ? (
        <article class="panel row-card" aria-label={S.label.row(row.line)}>
          <h2 class="small muted">{S.label.row(row.line)}</h2>
          <p class="asked" dir="auto">
            {row.question ?? S.label.noQuestion}
          </p>
          <dl class="facts">
            <dt>{S.label.answer}</dt>
            <dd>
              <q dir="auto">{row.answer}</q>
            </dd>
            <dt>{S.label.references}</dt>
            <dd>
              {row.references.map((reference) => (
                <>
                  <q dir="auto">{reference}</q>{" "}
                </>
              ))}
            </dd>
            <dt>{S.label.verdict}</dt>
            <dd>
              {S.label.verdictOf(verdicts.get(row.line) ?? row.correct)}{" "}
              <span class="muted">{verdicts.has(row.line) ? S.label.byYou : (S.label.rules[row.rule] ?? row.rule)}</span>
            </dd>
          </dl>
          <p class="buttons">
            <button type="button" disabled={isSending} onClick={() => take("right")}>
              {S.right} <kbd>y</kbd>
            </button>
            <button type="button" disabled={isSending} onClick={() => take("wrong")}>
              {S.wrong} <kbd>n</kbd>
            </button>
            <button type="button" disabled={isSending} onClick={() => take("skip")}>
              {S.skip} <kbd>s</kbd>
            </button>
            {back}
          </p>
        </article>
      ) : (
        <>
          <p class="note good">{S.label.end}</p>
          <p class="buttons">{back}</p>
        </>
      )}
      {error !== undefined && <Trouble error={error} />}
      <p class="buttons">
        <button type="button" class="primary" disabled={changed.length === 0 || isSending} onClick={fit}>
          {S.label.fit(changed.length)}
        </button>
        <span class="muted">{S.label.fitMeans}</span>
      </p>
    </>
  );
}

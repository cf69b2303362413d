// Calibrations: which one applies, what it promises, what another would change; activate, go back, export, forget.
import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { address, call, promised, tokensOf, type Activation, type Calibration, type Report } from "./api";
import { Opening } from "./calibrate";
import { Chart } from "./chart";
import { S } from "./strings";
import { Await, Confirm, Field, View, useLoaded, useSay } from "./ui";

const all = () => call<Calibration[]>("/calibrations");
const nameOf = (calibration: { name: string; id: string }): string => calibration.name || calibration.id;

export function Calibrations(): JSX.Element {
  const loaded = useLoaded(() => Promise.all([all(), call<Activation[]>("/calibrations/activations")]), []);
  const [asked, setAsked] = useState<Calibration | undefined>();
  const ask = (calibration: Calibration) => {
    setAsked(calibration);
    loaded.reload(); // somebody else may have activated another one
  };
  return (
    <View title={S.calibrations.title} lead={S.calibrations.lead}>
      <Await loaded={loaded}>
        {([list, history]) =>
          list.length === 0 ? (
            <div class="panel empty">
              <p>{S.calibrations.none}</p>
              <a class="button primary" href="#/calibrate">
                {S.calibrations.first}
              </a>
            </div>
          ) : (
            <>
              <ul class="cards">
                {list.map((calibration) => (
                  <Card
                    calibration={calibration}
                    periods={periodsOf(calibration, history)}
                    activate={() => ask(calibration)}
                  />
                ))}
              </ul>
              {asked && <Activate calibration={asked} list={list} close={() => setAsked(undefined)} done={loaded.reload} />}
            </>
          )
        }
      </Await>
    </View>
  );
}

type Period = Activation & { until: string | undefined };

/** Return when a calibration was active. The history and the periods begin with the latest. */
function periodsOf(calibration: Calibration, history: Activation[]): Period[] {
  const ofSetUp = history.filter((activation) => activation.fingerprint_key === calibration.fingerprint_key);
  return ofSetUp
    .map((activation, index) => ({ ...activation, until: ofSetUp[index - 1]?.activated_at }))
    .filter((period) => period.calibration_id === calibration.id);
}

function Card(props: {
  calibration: Calibration;
  periods: Period[];
  activate: () => void;
}): JSX.Element {
  const { calibration } = props;
  const { promise } = calibration;
  const [latest, ...earlier] = props.periods;
  return (
    <li class={`panel card ${calibration.active && calibration.applies_now ? "current" : ""}`}>
      <h2>
        <a href={`#/calibrations/${calibration.id}`} dir="auto">
          {nameOf(calibration)}
        </a>
      </h2>
      <p>
        <State calibration={calibration} />
      </p>
      <dl class="facts">
        <dt>{S.calibrations.rows}</dt>
        <dd>{S.calibrations.rowsOf(calibration.rows, calibration.num_samples)}</dd>
        <dt>{S.calibrations.error}</dt>
        <dd>{S.calibrations.fromTo(calibration.raw_projection_ece ?? null, calibration.projection_ece)}</dd>
        <dt>{S.calibrations.promise}</dt>
        <dd>{promise ? S.calibrations.promiseOf(promise.target_error, promise.coverage, promise.num_samples) : S.calibrations.noPromise}</dd>
        <dt>{S.calibrations.age}</dt>
        <dd>
          <time dateTime={calibration.created_at}>{S.when(calibration.created_at)}</time>
        </dd>
        <dt>{S.calibrations.history}</dt>
        {props.periods.length === 0 && <dd>{S.calibrations.noHistory}</dd>}
        {latest && (
          <dd>
            <ActivePeriod period={latest} />
            {earlier.length > 0 && (
              <details>
                <summary>{S.calibrations.earlier(earlier.length)}</summary>
                {earlier.map((period) => (
                  <p>
                    <ActivePeriod period={period} />
                  </p>
                ))}
              </details>
            )}
          </dd>
        )}
      </dl>
      {!calibration.active && (
        <p class="buttons">
          <button type="button" onClick={props.activate}>
            {props.periods.length > 0 ? S.calibrations.back(nameOf(calibration)) : S.calibrations.activate}
          </button>
        </p>
      )}
    </li>
  );
}

function ActivePeriod(props: { period: Period }): JSX.Element {
  const { activated_at: from, until, by, reason } = props.period;
  return (
    <>
      {S.calibrations.period(from, until)}{" "}
      <span class="small muted">
        {by && S.calibrations.by(by)} {reason}
      </span>
    </>
  );
}

function State(props: { calibration: Calibration }): JSX.Element {
  const { active, applies_now: applies } = props.calibration;
  const tone = active && applies ? "good" : active ? "warn" : "";
  return <span class={`tag ${tone}`}>{S.calibrations.state(active, applies)}</span>;
}

/** Ask before a calibration is activated, and spell out what changes. */
function Activate(props: {
  calibration: Calibration;
  list: Calibration[];
  close: () => void;
  done: () => void;
}): JSX.Element {
  const { calibration } = props;
  const say = useSay();
  const current = props.list.find((other) => other.active && other.fingerprint_key === calibration.fingerprint_key);
  const run = async () => {
    await call(`/calibrations/${calibration.id}/activate`, "POST");
    say(S.calibrations.activated(nameOf(calibration)));
    props.done();
  };
  const promise = (of: Calibration | undefined) =>
    of?.promise ? S.calibrations.promiseOf(of.promise.target_error, of.promise.coverage, of.promise.num_samples) : S.calibrations.noPromise;
  return (
    <Confirm title={S.calibrations.activateTitle(nameOf(calibration))} action={S.calibrations.activate} run={run} close={props.close}>
      {current?.id === calibration.id && <p class="note">{S.calibrations.isActive}</p>}
      <ul hidden={current?.id === calibration.id}>
        <li>{S.calibrations.replaces(current ? nameOf(current) : null)}</li>
        <li>{S.calibrations.promiseChange(promise(current), promise(calibration))}</li>
        <li>{S.calibrations.errorChange(current?.projection_ece ?? null, calibration.projection_ece)}</li>
        <li>
          {calibration.applies_now
            ? S.calibrations.appliesFromNow(calibration.fingerprint.source === "caller")
            : S.calibrations.doesNotApply}
        </li>
        {current && <li>{S.calibrations.canGoBack(nameOf(current))}</li>}
      </ul>
    </Confirm>
  );
}

export function CalibrationView(props: { id: string }): JSX.Element {
  const { id } = props;
  const loaded = useLoaded(
    () => Promise.all([call<Calibration>(`/calibrations/${id}`), call<Report>(`/calibrations/${id}/report`), all()]),
    [id],
  );
  const [asked, setAsked] = useState<"activate" | "export" | "forget" | undefined>();
  const name = loaded.value ? nameOf(loaded.value[0]) : S.calibrations.one;
  return (
    <View title={name}>
      <p>
        <a href="#/calibrations">{S.calibrations.toAll}</a>
      </p>
      <Await loaded={loaded}>
        {([calibration, report, list]) => (
          <>
            <p>
              <State calibration={calibration} /> <code class="muted">{calibration.id}</code>
            </p>
            <Opening report={report} />
            <p class="buttons">
              {!calibration.active && (
                <button
                  type="button"
                  class="primary"
                  onClick={() => {
                    setAsked("activate");
                    loaded.reload();
                  }}
                >
                  {S.calibrations.activate}
                </button>
              )}
              {calibration.data_kept && (
                <>
                  {calibration.fingerprint.unit !== "claim" && (
                    <a class="button" href={`#/label/${id}`}>
                      {S.label.title}
                    </a>
                  )}
                  <button type="button" onClick={() => setAsked("export")}>
                    {S.calibrations.export}
                  </button>
                  <button type="button" onClick={() => setAsked("forget")}>
                    {S.calibrations.forget}
                  </button>
                </>
              )}
            </p>
            {!calibration.data_kept && <p class="note">{S.calibrations.forgotten}</p>}
            <Tradeoff report={report} />
            <section aria-labelledby="report">
              <h2 id="report">{S.calibrations.report}</h2>
              <p>
                <a href={address(`/calibrations/${id}/report`)} target="_blank" rel="noopener">
                  {S.calibrations.reportAlone}
                </a>
              </p>
              <iframe title={S.calibrations.report} src={address(`/calibrations/${id}/report`)} loading="lazy" />
            </section>
            {asked === "activate" && (
              <Activate calibration={calibration} list={list} close={() => setAsked(undefined)} done={loaded.reload} />
            )}
            {asked === "export" && (
              <Confirm
                title={S.calibrations.exportTitle(nameOf(calibration))}
                action={S.calibrations.export}
                typed={nameOf(calibration)}
                run={async () => {
                  // A download that fails says nothing.
                  if (!(await call<Calibration>(`/calibrations/${id}`)).data_kept) return loaded.reload();
                  const link = document.createElement("a");
                  Object.assign(link, { href: address(`/calibrations/${id}/data`), download: "" }).click();
                }}
                close={() => setAsked(undefined)}
              >
                <p>{S.calibrations.exportMeans(calibration.rows)}</p>
              </Confirm>
            )}
            {asked === "forget" && (
              <Confirm
                title={S.calibrations.forgetTitle(nameOf(calibration))}
                action={S.calibrations.forget}
                typed={nameOf(calibration)}
                isDangerous
                run={async () => {
                  await call(`/calibrations/${id}/data`, "DELETE");
                  loaded.reload();
                }}
                close={() => setAsked(undefined)}
              >
                <p>{S.calibrations.forgetMeans(calibration.rows)}</p>
              </Confirm>
            )}
          </>
        )}
      </Await>
    </View>
  );
}

const USUAL = 0.2;
const TARGETS = Array.from({ length: 60 }, (_, index) => (index + 1) / 100);

/** Share answered and tokens against the target error, on the rows of the calibration. */
function Tradeoff(props: { report: Report }): JSX.Element {
  const { report } = props;
  // The usual target, or the lowest one above it that can be promised.
  const [target, setTarget] = useState(() => TARGETS.find((error) => error >= USUAL && promised(report, error)) ?? USUAL);
  const tokens = tokensOf(report);
  if (report.correctness.risk_coverage.length === 0)
    return (
      <section class="panel">
        <h2>{S.calibrations.tradeoff}</h2>
        <p>{S.calibrations.noVerdicts(report.correctness.num_samples)}</p>
      </section>
    );
  const at = promised(report, target);
  const text = at
    ? S.calibrations.answered(target, at.coverage, at.error, report.correctness.num_samples, tokens)
    : S.calibrations.notPromised(target, report.correctness.confidence);
  return (
    <section class="panel">
      <h2>{S.calibrations.tradeoff}</h2>
      <Field label={S.calibrations.target(target)}>
        {(ids) => (
          <input
            {...ids}
            type="range"
            min={0.01}
            max={0.6}
            step={0.01}
            value={target}
            aria-valuetext={`${S.percent(target)}. ${text}`}
            onInput={(event) => setTarget(event.currentTarget.valueAsNumber)}
          />
        )}
      </Field>
      <p>
        <output>{text}</output>
      </p>
      <Chart
        label={S.calibrations.curve}
        xLabel={S.calibrations.targetShort}
        x={TARGETS}
        xText={S.percent}
        line={{ name: S.calibrations.share, values: TARGETS.map((error) => promised(report, error)?.coverage ?? 0) }}
        format={S.percent}
        marker={target}
      />
      <p class="small muted">{S.calibrations.onTheseRows(report.data.rows_full, report.correctness.confidence)}</p>
    </section>
  );
}

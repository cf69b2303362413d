// Try: ask, see the answers gather into groups, and read the verdict.
import type { JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { ROOT, streamScore, type Score, type ScoreRequest } from "./api";
import { Chart, type Line } from "./chart";
import { S } from "./strings";
import { Choice, Code, Field, Trouble, View, useSay } from "./ui";

type Kind = "question" | "conversation" | "answer";
type Turn = { role: "system" | "user" | "assistant"; content: string };
type Draft = { kind: Kind; prompt: string; turns: Turn[]; candidate: string; count: number; target: number };
type Result = { score: Score; at: string; request: ScoreRequest };

const KEPT = "eigencal-tried";
const MAX_KEPT = 20;
const FIRST: Draft = {
  kind: "question",
  prompt: "",
  turns: [{ role: "user", content: "" }],
  candidate: "",
  count: 20,
  target: 0.2,
};

// The form as it was left: other views do not empty it. Loading the page anew does.
let left: Draft = FIRST;

/** Return the results of this session, newest first. */
function kept(): Result[] {
  try {
    return JSON.parse(sessionStorage.getItem(KEPT) ?? "[]") as Result[];
  } catch {
    return [];
  }
}

function keep(result: Result): Result[] {
  const results = [result, ...kept()].slice(0, MAX_KEPT);
  try {
    sessionStorage.setItem(KEPT, JSON.stringify(results));
  } catch {
    // The storage is full or closed to this page: the results are kept until it is left.
  }
  return results;
}

/** Return the body of POST /score for a draft. */
function bodyOf(draft: Draft): ScoreRequest {
  const asked = draft.kind === "conversation" ? { messages: draft.turns } : { prompt: draft.prompt };
  const isJudged = draft.kind === "answer" || (draft.kind === "conversation" && draft.candidate.trim());
  const judged = isJudged ? { candidate: draft.candidate } : {};
  return {
    ...asked,
    ...judged,
    num_samples: draft.count,
    ...(draft.target ? { target_error: draft.target } : {}),
    return: ["samples", "groups", "spectrum"],
  } as ScoreRequest;
}

const questionOf = (request: ScoreRequest): string => request.prompt ?? request.messages?.at(-1)?.content ?? "";

export function Try(): JSX.Element {
  const [draft, setDraft] = useState<Draft>(left);
  const [results, setResults] = useState<Result[]>(kept);
  const [shown, setShown] = useState<Result | undefined>();
  const [arrived, setArrived] = useState<{ texts: string[]; count: number } | undefined>();
  const [error, setError] = useState<unknown>();
  const running = useRef<AbortController | undefined>(undefined);
  const output = useRef<HTMLElement>(null);
  const say = useSay();
  useEffect(() => () => running.current?.abort(), []);
  useEffect(() => {
    left = draft;
  }, [draft]);

  const set = (part: Partial<Draft>) => setDraft({ ...draft, ...part });
  const run = async (asked: Draft) => {
    running.current?.abort();
    const controller = (running.current = new AbortController());
    const request = bodyOf(asked);
    const texts: string[] = [];
    setError(undefined);
    setShown(undefined);
    setArrived({ texts: [], count: asked.count });
    output.current?.scrollIntoView({ block: "nearest" });
    say(S.try.drawing);
    try {
      const add = (text: string) => {
        texts.push(text);
        setArrived({ texts: [...texts], count: asked.count });
      };
      const score = await streamScore(request, add, controller.signal);
      const result = { score, request, at: new Date().toISOString() };
      setShown(result);
      setResults(keep(result));
      say(headline(score).text);
    } catch (failure) {
      if (controller.signal.aborted) say(S.try.stopped);
      else setError(failure);
    } finally {
      if (running.current === controller) setArrived(undefined);
    }
  };
  const show = (result: Result) => {
    running.current?.abort();
    setError(undefined);
    setDraft({ ...FIRST, ...fromRequest(result.request), count: result.request.num_samples ?? FIRST.count });
    setShown(result);
    scrollTo(0, 0);
  };
  const submit = (event: Event) => {
    event.preventDefault();
    void run(draft);
  };
  const example = (part: Partial<Draft>) => {
    const next = { ...FIRST, ...part };
    setDraft(next);
    void run(next);
  };

  return (
    <View title={S.try.title} lead={S.try.lead}>
      <div class="columns">
        <form onSubmit={submit} class="panel">
          <Choice
            legend={S.try.kind}
            value={draft.kind}
            options={[
              ["question", S.try.question],
              ["conversation", S.try.conversation],
              ["answer", S.try.judge],
            ]}
            onChange={(kind) => set({ kind })}
          />
          {draft.kind === "conversation" ? (
            <Turns turns={draft.turns} onChange={(turns) => set({ turns })} />
          ) : (
            <Field label={S.try.prompt}>
              {(ids) => (
                <textarea
                  {...ids}
                  rows={3}
                  required
                  value={draft.prompt}
                  onInput={(e) => set({ prompt: e.currentTarget.value })}
                  onKeyDown={(e) => {
                    if (e.key === "Enter" && (e.ctrlKey || e.metaKey)) e.currentTarget.form?.requestSubmit();
                  }}
                />
              )}
            </Field>
          )}
          {draft.kind !== "question" && (
            <Field
              label={draft.kind === "answer" ? S.try.candidate : S.try.candidateOptional}
              hint={S.try.candidateHint}
            >
              {(ids) => (
                <textarea
                  {...ids}
                  rows={3}
                  required={draft.kind === "answer"}
                  value={draft.candidate}
                  onInput={(e) => set({ candidate: e.currentTarget.value })}
                />
              )}
            </Field>
          )}
          <div class="row">
            <Field label={S.try.count}>
              {(ids) => (
                <input
                  {...ids}
                  type="number"
                  min={2}
                  max={256}
                  required
                  value={draft.count}
                  onInput={(e) => set({ count: e.currentTarget.valueAsNumber })}
                />
              )}
            </Field>
            <Field label={S.try.target}>
              {(ids) => (
                <select {...ids} value={draft.target} onChange={(e) => set({ target: Number(e.currentTarget.value) })}>
                  {[0.05, 0.1, 0.2, 0.3].map((error) => (
                    <option value={error}>{S.try.atMost(error)}</option>
                  ))}
                  <option value={0}>{S.try.asSetUp}</option>
                </select>
              )}
            </Field>
          </div>
          <p class="buttons">
            <button type="submit" class="primary">
              {S.try.ask}
            </button>
            {arrived && (
              <button type="button" onClick={() => running.current?.abort()}>
                {S.try.stop}
              </button>
            )}
          </p>
        </form>
        <section class="result" ref={output} aria-label={S.try.result} aria-busy={arrived !== undefined}>
          {error !== undefined && <Trouble error={error} retry={() => run(draft)} />}
          {arrived && <Arriving {...arrived} />}
          {shown && <Verdict key={shown.score.id} result={shown} again={(count) => example({ ...fromRequest(shown.request), count })} />}
          {!shown && !arrived && error === undefined && <Empty start={example} />}
        </section>
      </div>
      {results.length > 0 && (
        <section aria-labelledby="tried">
          <h2 id="tried">{S.try.history}</h2>
          <ul class="history">
            {results.map((result) => (
              <li>
                <button type="button" class="quiet" onClick={() => show(result)}>
                  <span class={`dot ${headline(result.score).tone}`} aria-hidden="true" />
                  <span class="cut">{questionOf(result.request)}</span>
                  <span class="cut muted">{result.score.candidate ? result.request.candidate : result.score.answer}</span>
                  <span>{headline(result.score).short}</span>
                </button>
              </li>
            ))}
          </ul>
        </section>
      )}
    </View>
  );
}

/** Return the draft that makes a request. */
function fromRequest(request: ScoreRequest): Partial<Draft> {
  const kind: Kind = request.messages ? "conversation" : request.candidate ? "answer" : "question";
  return {
    kind,
    prompt: request.prompt ?? "",
    turns: (request.messages as Turn[] | undefined) ?? FIRST.turns,
    candidate: request.candidate ?? "",
    target: request.target_error ?? 0,
  };
}

function Empty(props: { start: (part: Partial<Draft>) => void }): JSX.Element {
  return (
    <div class="panel empty">
      <h2>{S.try.start}</h2>
      <p>{S.try.startHow}</p>
      <ul class="examples">
        {S.try.examples.map((example) => (
          <li>
            <button type="button" onClick={() => props.start(example.draft)}>
              {example.text}
            </button>
          </li>
        ))}
      </ul>
    </div>
  );
}

function Turns(props: { turns: Turn[]; onChange: (turns: Turn[]) => void }): JSX.Element {
  const { turns, onChange } = props;
  const change = (at: number, part: Partial<Turn>) =>
    onChange(turns.map((turn, index) => (index === at ? { ...turn, ...part } : turn)));
  return (
    <fieldset class="turns">
      <legend>{S.try.turns}</legend>
      {turns.map((turn, index) => (
        <div class="turn">
          <select
            aria-label={S.try.speaker(index + 1)}
            value={turn.role}
            onChange={(e) => change(index, { role: e.currentTarget.value as Turn["role"] })}
          >
            <option value="system">{S.try.roles.system}</option>
            <option value="user">{S.try.roles.user}</option>
            <option value="assistant">{S.try.roles.assistant}</option>
          </select>
          <textarea
            aria-label={S.try.turn(index + 1)}
            rows={2}
            required
            value={turn.content}
            onInput={(e) => change(index, { content: e.currentTarget.value })}
          />
          {turns.length > 1 && (
            <button type="button" class="small" aria-label={S.try.removeTurn(index + 1)} onClick={() => onChange(turns.toSpliced(index, 1))}>
              {S.remove}
            </button>
          )}
        </div>
      ))}
      <button
        type="button"
        class="small"
        onClick={() => onChange([...turns, { role: turns.at(-1)?.role === "user" ? "assistant" : "user", content: "" }])}
      >
        {S.try.addTurn}
      </button>
    </fieldset>
  );
}

type Group = { label: string; texts: Map<string, number>; count: number };

/** Group texts that differ in case, spaces and final punctuation only: before the score knows what they say. */
function bySpelling(texts: string[]): Group[] {
  const groups = new Map<string, Group>();
  for (const text of texts) {
    const spelling = text.toLowerCase().replace(/[\s.!?,;:"'“”]+/gu, " ").trim();
    const group = groups.get(spelling) ?? { label: text, texts: new Map(), count: 0 };
    group.count += 1;
    group.texts.set(text, (group.texts.get(text) ?? 0) + 1);
    groups.set(spelling, group);
  }
  return [...groups.values()].sort((a, b) => b.count - a.count);
}

/** Return the groups of a score, with the wordings of each. */
function byMeaning(score: Score): Group[] {
  return (score.groups ?? []).map((group) => {
    const texts = new Map<string, number>();
    for (const position of group.samples) {
      const text = score.samples?.[position] ?? "";
      texts.set(text, (texts.get(text) ?? 0) + 1);
    }
    return { label: group.answer, texts, count: group.samples.length };
  });
}

function Groups(props: { groups: Group[]; total: number }): JSX.Element {
  return (
    <ul class="groups">
      {props.groups.map((group) => (
        <li>
          <div class="group">
            <span class="count">{S.try.say(group.count, props.total)}</span>
            <q class="clamp" dir="auto">{group.label || S.try.blank}</q>
            <meter min={0} max={props.total} value={group.count} aria-hidden="true" />
          </div>
          {group.texts.size > 1 && (
            <details>
              <summary>{S.try.wordings(group.texts.size)}</summary>
              <ul>
                {[...group.texts].map(([text, count]) => (
                  <li>
                    <q>{text || S.try.blank}</q> {count > 1 && S.try.times(count)}
                  </li>
                ))}
              </ul>
            </details>
          )}
        </li>
      ))}
    </ul>
  );
}

function Arriving(props: { texts: string[]; count: number }): JSX.Element {
  return (
    <div class="panel">
      <p>
        <label>
          {S.try.arrived(props.texts.length, props.count)}
          <progress max={props.count} value={props.texts.length} />
        </label>
      </p>
      <Groups groups={bySpelling(props.texts)} total={Math.max(props.count, props.texts.length)} />
    </div>
  );
}

type Headline = { text: string; short: string; tone: "good" | "bad" | "plain" };

/** Return the verdict of a score in one sentence. */
function headline(score: Score): Headline {
  const right = score.candidate ? score.candidate.probability_correct : score.probability_correct;
  const action = score.decision?.action;
  const tone = action === undefined ? "plain" : action === "answer" ? "good" : "bad";
  const short = right === null || right === undefined ? S.try.unknown : S.percent(right);
  const text = action === undefined ? S.try.undecided(score.lambda_max) : score.decision!.reason;
  return { text, short, tone };
}

function Verdict(props: { result: Result; again: (count: number) => void }): JSX.Element {
  const { score, request } = props.result;
  const { text, tone } = headline(score);
  const judged = score.candidate ? (request.candidate ?? "").trim() : score.answer; // as claims count its characters
  const codes = new Set(score.warnings.map((warning) => warning.code));
  const caveats = score.warnings.filter((warning) => warning.code === "correctness_label_mismatch");
  const more = Math.min(256, Math.max(20, score.num_samples * 2, request.num_samples ?? 0));
  const canHelp = score.num_samples < more && score.num_distinct > 1 && !codes.has("target_unreachable");
  return (
    <>
      <div class={`verdict ${tone}`}>
        <p class="asked" dir="auto">{questionOf(request)}</p>
        <Judged text={judged} score={score} />
        <p class="sentence">{text}</p>
        {caveats.map((warning) => (
          <p>{warning.message}</p>
        ))}
        <p class="buttons">
          {tone === "bad" && canHelp && (
            <button type="button" onClick={() => props.again(more)}>
              {S.try.drawMore(more)}
            </button>
          )}
          {(codes.has("default_probability") || codes.has("default_calibration") || codes.has("calibration_missing")) && (
            <a class="button" href="#/calibrate">
              {S.try.calibrate}
            </a>
          )}
        </p>
      </div>
      <section class="panel">
        <h2>{S.try.answers}</h2>
        <p>{S.try.groups(byMeaning(score).map((group) => [group.count, group.label]))}</p>
        {(score.disagreements ?? []).map((disagreement) => (
          <p class="note warn">
            {S.try.disagreement(disagreement.kind, disagreement.values.map((value) => [value.value, value.share]))}
          </p>
        ))}
        <Groups groups={byMeaning(score)} total={score.num_samples} />
      </section>
      {score.claims && score.claims.length > 0 && <Claims score={score} />}
      {score.spectrum && score.uncalibrated && <Spectrum score={score} />}
      {score.warnings.length > 0 && (
        <section class="panel">
          <h2>{S.try.warnings}</h2>
          <ul>
            {score.warnings.map((warning) => (
              <li>
                {warning.message} <code class="muted">{warning.code}</code>
              </li>
            ))}
          </ul>
        </section>
      )}
      <section class="panel">
        <h2>{S.try.cost}</h2>
        <Cost score={score} />
      </section>
      <Snippets request={request} />
    </>
  );
}

/** The judged text, with doubtful claims underlined. Claims count in code points. */
function Judged(props: { text: string; score: Score }): JSX.Element {
  const points = [...props.text];
  const parts: (string | JSX.Element)[] = [];
  let at = 0;
  for (const [index, claim] of (props.score.claims ?? []).entries()) {
    if (!claim.doubtful || claim.start < at) continue;
    parts.push(points.slice(at, claim.start).join(""));
    parts.push(
      <mark class="doubtful" aria-describedby={`claim-${index}`}>
        {points.slice(claim.start, claim.end).join("")}
      </mark>,
    );
    at = claim.end;
  }
  parts.push(points.slice(at).join(""));
  return <blockquote class="judged" dir="auto" tabIndex={points.length > 2000 ? 0 : undefined}>{parts}</blockquote>;
}

function Claims(props: { score: Score }): JSX.Element {
  const claims = props.score.claims ?? [];
  const numDoubtful = claims.filter((claim) => claim.doubtful).length;
  return (
    <section class="panel">
      <h2>{S.try.claims(claims.length, numDoubtful)}</h2>
      <ol class="claims">
        {claims.map((claim, index) => (
          <li id={`claim-${index}`} class={claim.doubtful ? "doubtful" : ""}>
            <q>{claim.text}</q>
            <br />
            <span class="small muted">
              {claim.doubtful && <strong>{S.try.doubtful} </strong>}
              {S.try.why(claim.probability_correct, claim.support)}
            </span>
          </li>
        ))}
      </ol>
    </section>
  );
}

function Spectrum(props: { score: Score }): JSX.Element {
  const { score } = props;
  const served = score.spectrum!.eigenvalues;
  const raw = score.spectrum!.uncalibrated;
  const count = Math.min(Math.max(served.length, raw.length), 12);
  const x = Array.from({ length: count }, (_, index) => index + 1);
  const at = (values: number[]) => x.map((index) => values[index - 1] ?? null);
  const lines: Line[] = [{ name: S.try.before, color: "before", values: at(raw), isBar: true }];
  if (score.calibration) lines.push({ name: S.try.after, color: "after", values: at(served), isBar: true });
  return (
    <section class="panel">
      <h2>{S.try.spectrum}</h2>
      <p>{S.try.spectrumMeans(score.lambda_max, score.uncalibrated!.lambda_max, score.calibration !== null)}</p>
      <Chart
        label={S.try.eigenvalues}
        xLabel={S.try.meaning}
        x={x}
        xText={(value) => String(value)}
        lines={lines}
        format={S.number}
      />
    </section>
  );
}

function Cost(props: { score: Score }): JSX.Element {
  const { score } = props;
  const times = score.timings_ms;
  const facts: [string, string][] = [
    [S.try.facts.answers, S.try.facts.distinct(score.num_samples, score.num_distinct)],
    [S.try.facts.tokens, score.usage?.completion_tokens ? S.try.facts.tokensOf(score.usage.prompt_tokens, score.usage.completion_tokens) : S.none],
    [S.try.facts.time, S.try.facts.ms(times.total, times.generate ?? 0, times.embed, times.spectrum)],
    [S.try.facts.model, score.model ?? S.none],
    [S.try.facts.kernel, `${score.kernel ?? S.none} · ${score.embedder}`],
    [S.try.facts.calibration, score.calibration ? `${score.calibration.id} · ${score.calibration.method}` : S.none],
    [S.try.facts.entropy, score.entropy === null ? S.none : S.number(score.entropy)],
    [S.try.facts.id, score.id],
  ];
  return (
    <dl class="facts">
      {facts.map(([name, value]) => (
        <>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </>
      ))}
    </dl>
  );
}

type Language = "curl" | "python" | "typescript";

function Snippets(props: { request: ScoreRequest }): JSX.Element {
  const [language, setLanguage] = useState<Language>("curl");
  return (
    <section class="panel">
      <h2>{S.try.request}</h2>
      <Choice
        legend={S.try.language}
        value={language}
        options={[
          ["curl", "curl"],
          ["python", "Python"],
          ["typescript", "TypeScript"],
        ]}
        onChange={setLanguage}
      />
      <Code text={snippet(language, props.request)} label={S.try.request} />
    </section>
  );
}

/** Return the request in a language. */
export function snippet(language: Language, request: ScoreRequest): string {
  const base = ROOT.href.replace(/\/$/, "");
  if (language === "curl") {
    const body = JSON.stringify(request, null, 2).replaceAll("'", "'\\''");
    return `curl -s ${base}/score \\\n  -H 'Authorization: Bearer '"$EIGENCAL_KEY" \\\n  -H 'Content-Type: application/json' \\\n  -d '${body}'`;
  }
  if (language === "typescript") {
    return [
      'import { Eigencal } from "eigencal";',
      "",
      `const client = new Eigencal({ baseUrl: ${JSON.stringify(base)}, key: process.env.EIGENCAL_KEY });`,
      `const score = await client.score(${JSON.stringify(request, null, 2)});`,
      "console.log(score.answer, score.probability_correct, score.decision?.action);",
    ].join("\n");
  }
  const { prompt, messages, ...others } = request;
  const first = messages ? pythonOf(messages) : pythonOf(prompt);
  const named = Object.entries(others).map(([name, value]) => `    ${name === "return" ? "return_" : name}=${pythonOf(value)},`);
  return [
    "from eigencal import Client",
    "",
    `client = Client(${pythonOf(base)})`,
    "score = client.score(",
    `    ${first},`,
    ...named,
    ")",
    "print(score.answer, score.probability_correct, score.decision)",
  ].join("\n");
}

/** Return a JSON value as a Python literal. JSON's texts, numbers and lists are Python's. */
function pythonOf(value: unknown): string {
  if (value === null || value === undefined) return "None";
  if (typeof value === "boolean") return value ? "True" : "False";
  if (Array.isArray(value)) return `[${value.map(pythonOf).join(", ")}]`;
  if (typeof value === "object") {
    return `{${Object.entries(value).map(([name, part]) => `${JSON.stringify(name)}: ${pythonOf(part)}`).join(", ")}}`;
  }
  return JSON.stringify(value);
}

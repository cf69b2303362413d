// Try: ask, and read the verdict and the answers by meaning.
import type { JSX } from "preact";
import { useContext, useEffect, useRef, useState } from "preact/hooks";
import { call, type Score, type ScoreRequest } from "./api";
import { S } from "./strings";
import { TenVerdicts } from "./ten";
import { App, Choice, Field, Trouble, View, useSay } from "./ui";

type Kind = "question" | "conversation" | "answer";
type Turn = { role: "system" | "user" | "assistant"; content: string };
type Draft = { kind: Kind; prompt: string; turns: Turn[]; candidate: string; count: number; target: number };
type Result = { score: Score; draft: Draft };

// A count or target of 0: as set up in the service.
const FIRST: Draft = {
  kind: "question",
  prompt: "",
  turns: [{ role: "user", content: "" }],
  candidate: "",
  count: 0,
  target: 0,
};

// The form as it was left: other views do not empty it. Loading the page anew does.
let left: Draft = FIRST;

/** Return the body of POST /score for a draft. */
function bodyOf(draft: Draft): ScoreRequest {
  const asked = draft.kind === "conversation" ? { messages: draft.turns } : { prompt: draft.prompt };
  const isJudged = draft.kind === "answer" || (draft.kind === "conversation" && draft.candidate.trim());
  const judged = isJudged ? { candidate: draft.candidate } : {};
  return {
    ...asked,
    ...judged,
    ...(draft.count ? { num_samples: draft.count } : {}),
    ...(draft.target ? { target_error: draft.target } : {}),
    return: ["samples", "modes"],
  } as ScoreRequest;
}

const questionOf = (draft: Draft): string => (draft.kind === "conversation" ? draft.turns.at(-1)!.content : draft.prompt);

export function Try(): JSX.Element {
  const [draft, setDraft] = useState<Draft>(left);
  const [shown, setShown] = useState<Result | undefined>();
  const [isWaiting, setWaiting] = useState(false);
  const [error, setError] = useState<unknown>();
  const running = useRef<AbortController | undefined>(undefined);
  const output = useRef<HTMLElement>(null);
  const say = useSay();
  const { session } = useContext(App);
  useEffect(() => () => running.current?.abort(), []);
  useEffect(() => {
    left = draft;
  }, [draft]);

  const set = (part: Partial<Draft>) => setDraft({ ...draft, ...part });
  const run = async (asked: Draft) => {
    running.current?.abort();
    const controller = (running.current = new AbortController());
    setError(undefined);
    setShown(undefined);
    setWaiting(true);
    output.current?.scrollIntoView({ block: "nearest" });
    say(S.try.drawing);
    try {
      const score = await call<Score>("/score", "POST", bodyOf(asked), controller.signal);
      setShown({ score, draft: asked });
      say(headline(score).text);
    } catch (failure) {
      if (controller.signal.aborted) say(S.try.stopped);
      else setError(failure);
    } finally {
      if (running.current === controller) setWaiting(false);
    }
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
            <Field label={S.try.count} hint={S.try.countHow}>
              {(ids) => (
                <input
                  {...ids}
                  type="number"
                  min={1}
                  max={256}
                  value={draft.count || ""}
                  onInput={(e) => set({ count: e.currentTarget.valueAsNumber || 0 })}
                />
              )}
            </Field>
            <Field label={S.try.target}>
              {(ids) => (
                <select {...ids} value={draft.target} onChange={(e) => set({ target: Number(e.currentTarget.value) })}>
                  <option value={0}>{S.try.asSetUp}</option>
                  {[0.05, 0.1, 0.2, 0.3, 0.5].map((error) => (
                    <option value={error}>{S.try.atMost(error)}</option>
                  ))}
                </select>
              )}
            </Field>
          </div>
          <p class="buttons">
            <button type="submit" class="primary">
              {S.try.ask}
            </button>
            {isWaiting && (
              <button type="button" onClick={() => running.current?.abort()}>
                {S.try.stop}
              </button>
            )}
          </p>
        </form>
        <section class="result" ref={output} aria-label={S.try.result} aria-busy={isWaiting}>
          {error !== undefined && <Trouble error={error} retry={() => run(draft)} />}
          {isWaiting && (
            <div class="panel">
              <label>
                {S.try.drawing}
                <progress />
              </label>
            </div>
          )}
          {shown && <Verdict key={shown.score.id} result={shown} />}
          {!shown && !isWaiting && error === undefined && <Empty start={example} />}
        </section>
      </div>
      {session.admin && <TenVerdicts />}
    </View>
  );
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

type Meaning = { label: string; texts: Map<string, number>; count: number };

/** Return the meanings of a score that some of its answers have, with the wordings of each. */
function byMeaning(score: Score): Meaning[] {
  return (score.modes ?? [])
    .filter((mode) => mode.samples.length > 0)
    .map((mode) => {
      const texts = new Map<string, number>();
      for (const position of mode.samples) {
        const text = score.samples?.[position] ?? "";
        texts.set(text, (texts.get(text) ?? 0) + 1);
      }
      return { label: mode.answer, texts, count: mode.samples.length };
    });
}

function Meanings(props: { meanings: Meaning[]; total: number }): JSX.Element {
  return (
    <ul class="meanings">
      {props.meanings.map((meaning) => (
        <li>
          <div class="meaning">
            <span class="count">{S.try.say(meaning.count, props.total)}</span>
            <q class="clamp" dir="auto">{meaning.label || S.try.blank}</q>
            <meter min={0} max={props.total} value={meaning.count} aria-hidden="true" />
          </div>
          {meaning.texts.size > 1 && (
            <details>
              <summary>{S.try.wordings(meaning.texts.size)}</summary>
              <ul>
                {[...meaning.texts].map(([text, count]) => (
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

type Headline = { text: string; tone: "good" | "bad" | "plain" };

/** Return the verdict of a score in one sentence. */
function headline(score: Score): Headline {
  const action = score.decision?.action;
  const tone = action === undefined ? "plain" : action === "answer" ? "good" : "bad";
  const text = action === undefined ? S.try.undecided(score.lambda_max) : score.decision!.reason;
  return { text, tone };
}

function Verdict(props: { result: Result }): JSX.Element {
  const { score, draft } = props.result;
  const meanings = byMeaning(score);
  const { text, tone } = headline(score);
  const judged = score.candidate ? draft.candidate.trim() : score.answer; // as claims count its characters
  const codes = new Set(score.warnings.map((warning) => warning.code));
  return (
    <>
      <div class={`verdict ${tone}`}>
        <p class="asked" dir="auto">{questionOf(draft)}</p>
        <Judged text={judged} score={score} />
        <p class="sentence">{text}</p>
        <p class="buttons">
          {(codes.has("bundled_questions") || codes.has("calibration_missing")) && (
            <a class="button" href="#/calibrate">
              {S.try.calibrate}
            </a>
          )}
        </p>
      </div>
      {meanings.length > 0 && (
        <section class="panel">
          <h2>{S.try.answers}</h2>
          <p>{S.try.meanings(meanings.map((meaning) => [meaning.count, meaning.label]))}</p>
          <Meanings meanings={meanings} total={score.num_samples} />
        </section>
      )}
      {score.claims && score.claims.length > 0 && <Claims score={score} />}
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
    [S.try.facts.selfCheck, score.self_check === null ? S.none : S.number(score.self_check)],
    [S.try.facts.lambda, score.lambda_max === null ? S.none : S.number(score.lambda_max)],
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

// Parts that all views use.
import type { ComponentChildren, JSX } from "preact";
import { createContext } from "preact";
import { useContext, useEffect, useId, useRef, useState } from "preact/hooks";
import { Failure, type Session } from "./api";
import { S } from "./strings";

/** What the caller may do, and how to say something to screen readers. */
export const App = createContext<{ session: Session; say: (text: string) => void }>({
  session: { score: false, admin: false, signed_in: false, version: "" },
  say: () => undefined,
});

/** Return a function that speaks to screen readers. */
export const useSay = (): ((text: string) => void) => useContext(App).say;

export type Loaded<T> = { value?: T; error?: unknown; reload: () => void };

/** Load a value whenever one of `when` changes. A failed reload keeps the value. */
export function useLoaded<T>(load: () => Promise<T>, when: unknown[]): Loaded<T> {
  const [state, setState] = useState<{ value?: T; error?: unknown }>({});
  const [round, setRound] = useState(0);
  const last = useRef("");
  useEffect(() => {
    let isCurrent = true;
    const isReload = last.current === when.join();
    last.current = when.join();
    load().then(
      (value) => isCurrent && setState({ value }),
      (error: unknown) => isCurrent && setState((before) => (isReload ? { ...before, error } : { error })),
    );
    return () => {
      isCurrent = false;
    };
  }, [...when, round]);
  return { ...state, reload: () => setRound(round + 1) };
}

/** A view: its heading gets the focus when it opens, so that keyboards and screen readers start there. */
export function View(props: { title: string; children: ComponentChildren; lead?: ComponentChildren }): JSX.Element {
  const heading = useRef<HTMLHeadingElement>(null);
  useEffect(() => {
    document.title = `${props.title} · Eigencal`;
    heading.current?.focus({ preventScroll: true });
    scrollTo(0, 0);
  }, [props.title]);
  return (
    <main id="main">
      <h1 ref={heading} tabIndex={-1}>
        {props.title}
      </h1>
      {props.lead && <p class="lead">{props.lead}</p>}
      {props.children}
    </main>
  );
}

/** A failed call: what is wrong, what to do, and the id of the request. */
export function Trouble(props: { error: unknown; retry?: () => void }): JSX.Element {
  const { error } = props;
  const failure = error instanceof Failure ? error : null;
  const text = (failure?.code === "missing_key" && S.signIn.lead) || failure?.message || (failure ? S.error.unreachable : S.error.unexpected);
  return (
    <div class="note bad" role="alert">
      <p>{text}</p>
      {failure && failure.faults.length > 0 && <Faults faults={failure.faults} />}
      {failure?.requestId && (
        <p class="small">
          {S.error.request} <code>{failure.requestId}</code>
        </p>
      )}
      {(failure?.status === 401 || failure?.status === 403) && (
        <p>
          <a href={`#/sign-in?next=${encodeURIComponent(location.hash)}`}>{S.signIn.title}</a>
        </p>
      )}
      {props.retry && (
        <button type="button" onClick={props.retry}>
          {S.again}
        </button>
      )}
    </div>
  );
}

/** Faults of a file's rows, by line. */
export function Faults(props: { faults: { line: number | null; field: string | null; reason: string }[] }): JSX.Element {
  return (
    <table class="faults">
      <caption>{S.calibrate.faults}</caption>
      <thead>
        <tr>
          <th scope="col">{S.calibrate.line}</th>
          <th scope="col">{S.calibrate.field}</th>
          <th scope="col">{S.calibrate.fault}</th>
        </tr>
      </thead>
      <tbody>
        {props.faults.map((fault) => (
          <tr>
            <td>{fault.line ?? S.none}</td>
            <td>{fault.field ?? S.none}</td>
            <td>{fault.reason}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

/** Show a loaded value, or why there is none. */
export function Await<T>(props: { loaded: Loaded<T>; children: (value: T) => ComponentChildren }): JSX.Element {
  const { value, error, reload } = props.loaded;
  if (error === undefined && value === undefined) return <p class="muted">{S.loading}</p>;
  return (
    <>
      {error !== undefined && <Trouble error={error} retry={reload} />}
      {value !== undefined && props.children(value)}
    </>
  );
}

/** A labelled form field. `children` gets the id for the control. */
export function Field(props: {
  label: string;
  hint?: string;
  children: (ids: { id: string; "aria-describedby"?: string }) => JSX.Element;
}): JSX.Element {
  const id = useId();
  const hint = props.hint === undefined ? {} : { "aria-describedby": `${id}-hint` };
  return (
    <div class="field">
      <label for={id}>{props.label}</label>
      {props.children({ id, ...hint })}
      {props.hint !== undefined && (
        <p class="small muted" id={`${id}-hint`}>
          {props.hint}
        </p>
      )}
    </div>
  );
}

/** A question that stops until it is answered. `leave`: the answer no. `typed`: a text that must be typed to confirm. */
export function Confirm(props: {
  title: string;
  children: ComponentChildren;
  action: string;
  leave?: string;
  typed?: string;
  isDangerous?: boolean;
  run: () => Promise<void>;
  close: () => void;
}): JSX.Element {
  const dialog = useRef<HTMLDialogElement>(null);
  const [text, setText] = useState("");
  const [error, setError] = useState<unknown>();
  const [isRunning, setRunning] = useState(false);
  const heading = useId();
  useEffect(() => dialog.current?.showModal(), []);
  const expected = props.typed?.replace(/\s+/g, " ").trim(); // an input holds no line break
  const run = async (event: Event) => {
    event.preventDefault();
    setRunning(true);
    try {
      await props.run();
      dialog.current?.close();
      // What opened the dialog may be gone.
      document.querySelector<HTMLElement>("h1")?.focus({ preventScroll: true });
    } catch (failure) {
      setError(failure);
      setRunning(false);
    }
  };
  return (
    <dialog
      ref={dialog}
      aria-labelledby={heading}
      onCancel={(event) => isRunning && event.preventDefault()}
      onClose={props.close}
    >
      <form onSubmit={run}>
        <h2 id={heading}>{props.title}</h2>
        {props.children}
        {expected !== undefined && (
          <Field label={S.typeToConfirm(expected)}>
            {(ids) => (
              <input {...ids} type="text" autocomplete="off" value={text} onInput={(e) => setText(e.currentTarget.value)} />
            )}
          </Field>
        )}
        {error !== undefined && <Trouble error={error} />}
        <p class="buttons">
          <button
            type="submit"
            class={props.isDangerous ? "danger" : "primary"}
            disabled={isRunning || (expected !== undefined && text.trim() !== expected)}
          >
            {props.action}
          </button>
          <button type="button" disabled={isRunning} onClick={() => dialog.current?.close()}>
            {props.leave ?? S.cancel}
          </button>
        </p>
      </form>
    </dialog>
  );
}

/** One of several values, as buttons. */
export function Choice<T extends string>(props: {
  legend: string;
  value: T;
  options: [T, string][];
  onChange: (value: T) => void;
}): JSX.Element {
  const name = useId();
  return (
    <fieldset class="choice">
      <legend>{props.legend}</legend>
      {props.options.map(([value, text]) => (
        <label>
          <input type="radio" name={name} checked={props.value === value} onChange={() => props.onChange(value)} />
          <span>{text}</span>
        </label>
      ))}
    </fieldset>
  );
}

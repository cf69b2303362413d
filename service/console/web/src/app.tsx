// The page: sign-in, navigation and the view of the present place.
import "uplot/dist/uPlot.min.css";
import "./style.css";
import { render, type JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { address, call, type Session } from "./api";
import { Calibrate, JobView } from "./calibrate";
import { Calibrations, CalibrationView } from "./calibrations";
import { Label, LabelChoice } from "./label";
import { go, usePlace, type Place } from "./router";
import { S } from "./strings";
import { Try } from "./try";
import { App, Field, Trouble, useLoaded, View } from "./ui";

// A file that misses its field must not replace the page.
addEventListener("dragover", (event) => event.preventDefault());
addEventListener("drop", (event) => event.preventDefault());

const PLACES = ["try", "calibrate", "calibrations", "label"] as const;

function Page(): JSX.Element {
  const place = usePlace();
  const [said, setSaid] = useState("");
  const loaded = useLoaded(() => call<Session>("/console/session"), []);
  const session = loaded.value;
  const here = place.path[0] ?? "try";
  useEffect(() => {
    if (session && !session.score && here !== "sign-in") go(`/sign-in?next=${encodeURIComponent(location.hash)}`);
  }, [session, here]);
  const signOut = async () => {
    try {
      await call("/console/session", "DELETE");
    } finally {
      sessionStorage.clear();
      enter("/sign-in");
    }
  };
  return (
    <>
      <a class="skip" href="#main" onClick={(event) => (event.preventDefault(), document.querySelector("h1")?.focus())}>
        {S.skipToMain}
      </a>
      <header>
        <a class="brand" href="#/try">
          Eigencal
        </a>
        <nav aria-label={S.nav.pages}>
          {PLACES.map((name) => (
            <a href={`#/${name}`} aria-current={here === name ? "page" : undefined}>
              {S.nav[name]}
            </a>
          ))}
        </nav>
        <span class="aside">
          <a href={address("/docs")}>{S.nav.api}</a>
          {session?.signed_in && (
            <button type="button" class="quiet" onClick={signOut}>
              {S.signIn.out}
            </button>
          )}
          {session && !session.signed_in && !(session.score && session.admin) && <a href="#/sign-in">{S.signIn.title}</a>}
        </span>
      </header>
      <div class="unseen" aria-live="polite">
        {said}
      </div>
      {loaded.error !== undefined && (
        <main>
          <Trouble error={loaded.error} retry={loaded.reload} />
        </main>
      )}
      {session && (
        <App.Provider value={{ session, say: setSaid }}>
          <Content place={place} session={session} />
        </App.Provider>
      )}
      <footer>{session && S.version(session.version)}</footer>
    </>
  );
}

function Content(props: { place: Place; session: Session }): JSX.Element {
  const [here = "try", first] = props.place.path;
  if (here === "sign-in") return <SignIn place={props.place} session={props.session} />;
  if (here === "try") return <Try />;
  if (!props.session.admin)
    return (
      <View title={here in S.nav ? S.nav[here as keyof typeof S.nav] : S.notFound}>
        <p class="note">{S.signIn.needsAdmin}</p>
        <a class="button primary" href={`#/sign-in?next=${encodeURIComponent(location.hash)}`}>
          {S.signIn.title}
        </a>
      </View>
    );
  if (here === "calibrate") return first ? <JobView key={first} id={first} /> : <Calibrate />;
  if (here === "calibrations") return first ? <CalibrationView key={first} id={first} /> : <Calibrations />;
  if (here === "label") return first ? <Label key={first} id={first} /> : <LabelChoice />;
  return (
    <View title={S.notFound}>
      <a href="#/try">{S.nav.try}</a>
    </View>
  );
}

/** Go to a place and load the page anew, with the rights of the present session. */
function enter(place: string): void {
  go(place);
  location.reload();
}

/** Go on to a place of this page or a path of this service; never to another host. */
function goOn(next: string): void {
  if (/^\/(?![/\\])/.test(next)) location.assign(address(next));
  else enter(next.startsWith("#/") ? next.slice(1) : "/try");
}

function SignIn(props: { place: Place; session: Session }): JSX.Element {
  const [key, setKey] = useState("");
  const [error, setError] = useState<unknown>();
  const next = props.place.query.get("next") ?? "";
  useEffect(() => {
    // A link from another site to a report sends no cookie, although the person is signed in.
    if (props.session.signed_in && next.startsWith("/")) goOn(next);
  }, []);
  const submit = async (event: Event) => {
    event.preventDefault();
    try {
      await call("/console/session", "POST", { key });
      goOn(next);
    } catch (failure) {
      setError(failure);
    }
  };
  return (
    <View title={S.signIn.title} lead={S.signIn.lead}>
      <form class="panel narrow" onSubmit={submit}>
        {/* For password managers, which store a name with each password. */}
        <input type="text" autocomplete="username" value="eigencal" readOnly hidden />
        <Field label={S.signIn.key}>
          {(ids) => (
            <input
              {...ids}
              type="password"
              autocomplete="current-password"
              required
              value={key}
              onInput={(e) => setKey(e.currentTarget.value)}
            />
          )}
        </Field>
        {error !== undefined && <Trouble error={error} />}
        <button type="submit" class="primary">
          {S.signIn.title}
        </button>
      </form>
    </View>
  );
}

render(<Page />, document.getElementById("app")!);

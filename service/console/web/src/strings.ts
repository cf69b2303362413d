// Every text of the page.

// A probability is never shown as certain, and a promised error is rounded up.
const percent = (share: number): string =>
  share > 0.9995 && share < 1 ? "over 99.9 %" : share > 0 && share < 0.0005 ? "under 0.1 %" : `${Math.round(1000 * share) / 10} %`;
const errorPercent = (error: number): string => `${Math.ceil(1000 * error - 1e-9) / 10} %`;
const number = (value: number): string => (Number.isInteger(value) ? String(value) : value.toFixed(Math.abs(value) < 10 ? 2 : 0));
const count = (n: number, thing: string, many = `${thing}s`): string => `${n.toLocaleString("en")} ${n === 1 ? thing : many}`;
// Isolated: a text from right to left must not turn the sentence around it.
const isolated = (text: string): string => `\u2068${text}\u2069`;
const short = (text: string): string => isolated([...text].length > 60 ? `${cut(text, 57)}…` : text);
const when = (time: string): string =>
  new Date(time).toLocaleString("en", { dateStyle: "medium", timeStyle: "short" });
const MAX_NAME = 200; // characters of a calibration's name, counted as the service counts them

/** Return the first characters of a text. */
const cut = (text: string, most = MAX_NAME): string => [...text].slice(0, most).join("");

/** Return the name of a calibration with corrected verdicts: "x, corrected", then "x, corrected 2" and so on. */
function corrected(name: string, taken: string[]): string {
  const original = name.replace(/, corrected( \d+)?$/, "");
  for (let times = 1; ; times += 1) {
    const suffix = times === 1 ? ", corrected" : `, corrected ${times}`;
    const proposed = cut(original, MAX_NAME - suffix.length) + suffix;
    if (!taken.includes(proposed)) return proposed;
  }
}

export const S = {
  percent,
  number,
  when,
  cut,
  none: "—",
  loading: "Loading…",
  again: "Try again",
  cancel: "Cancel",
  remove: "Remove",
  numbers: "Show the numbers",
  right: "Right",
  wrong: "Wrong",
  skip: "Skip",
  notFound: "There is no such page",
  skipToMain: "Skip to the content",
  typeToConfirm: (text: string) => `Type “${text}” to confirm`,
  version: (version: string) => `Eigencal ${version}`,

  nav: {
    pages: "Pages",
    try: "Try",
    calibrate: "Calibrate",
    calibrations: "Calibrations",
    label: "Label",
    api: "API",
  },

  error: {
    unreachable: "The service cannot be reached. Check that it is running, then try again.",
    unexpected: "Something unexpected happened. Try again.",
    request: "Request id:",
  },

  signIn: {
    title: "Sign in",
    out: "Sign out",
    lead: "Enter a key of this service: a score key to try prompts, an admin key for everything.",
    key: "Key",
    needsAdmin: "Calibrations need an admin key.",
  },

  try: {
    title: "May I trust this answer?",
    lead: "The question is asked several times. The answers are shown by meaning.",
    kind: "What to score",
    question: "A question",
    conversation: "A conversation",
    judge: "An answer of yours",
    prompt: "Question",
    candidate: "Answer to judge",
    candidateOptional: "Answer to judge (optional)",
    candidateHint: "This text is compared with the drawn answers.",
    count: "Answers to draw",
    countHow: "Leave empty to draw as many as set up in the service.",
    target: "Target error",
    atMost: (error: number) => `at most ${errorPercent(error)} wrong`,
    asSetUp: "as set up in the service",
    ask: "Ask",
    stop: "Stop",
    result: "Result",
    start: "Start here",
    startHow: "Choose an example, or write your own question.",
    examples: [
      {
        text: "Catch a wrong answer: “The capital of France is Lyon.”",
        draft: { kind: "answer" as const, prompt: "What is the capital of France?", candidate: "The capital of France is Lyon." },
      },
      { text: "An answer that the LLM knows: the capital of France", draft: { prompt: "What is the capital of France?" } },
      { text: "An answer that it cannot know: the name of my dog", draft: { prompt: "What is the name of my dog?" } },
    ],
    turns: "Conversation",
    roles: { system: "System", user: "User", assistant: "Assistant" },
    speaker: (n: number) => `Speaker of turn ${n}`,
    turn: (n: number) => `Text of turn ${n}`,
    addTurn: "Add a turn",
    removeTurn: (n: number) => `Remove turn ${n}`,
    drawing: "Drawing answers…",
    stopped: "Stopped.",
    say: (n: number, of: number) => `${n} of ${of}`,
    blank: "(no text)",
    wordings: (n: number) => `${n} wordings`,
    times: (n: number) => `× ${n}`,
    meanings: (meanings: [number, string][]) =>
      `${meanings.map(([n, text]) => `${n} ${n === 1 ? "says" : "say"} “${short(text)}”`).join(", ")}.`,
    undecided: (lambda: number | null) =>
      lambda === null
        ? "No decision is possible."
        : `No decision is possible. lambda_max, the agreement of the answers, is ${number(lambda)}.`,
    calibrate: "Calibrate on your own questions",
    answers: "What the answers say",
    warnings: "Warnings",
    claims: (n: number, doubtful: number) => `${count(n, "claim")}, ${doubtful} doubtful`,
    doubtful: "Doubtful.",
    why: (right: number | null, support: { agree: number; differ: number; silent: number; example: string | null } | null) => {
      const parts: string[] = [];
      if (right !== null) parts.push(`right with a probability of ${percent(right)}`);
      if (support) {
        parts.push(`stated in ${support.agree} of ${support.agree + support.differ + support.silent} answers`);
        if (support.differ) parts.push(`different in ${support.differ}${support.example ? `, such as “${short(support.example)}”` : ""}`);
        if (support.silent) parts.push(`not mentioned in ${support.silent}`);
      }
      const text = parts.join("; ");
      return text ? `${text[0]!.toUpperCase()}${text.slice(1)}.` : "";
    },
    cost: "Details",
    facts: {
      answers: "Answers",
      distinct: (n: number, distinct: number) => `${n}, ${distinct} distinct`,
      tokens: "Tokens",
      tokensOf: (prompt: number, completion: number) => `${prompt} of the prompt, ${completion} of the answers`,
      time: "Time",
      ms: (total: number, generate: number, embed: number, spectrum: number) =>
        `${Math.round(total)} ms: ${Math.round(generate)} to draw, ${Math.round(embed)} to embed, ${Math.round(spectrum)} for the spectrum`,
      model: "LLM",
      kernel: "Kernel and embedder",
      calibration: "Calibration",
      selfCheck: "Self-check (P(True))",
      lambda: "lambda_max",
      entropy: "Entropy (nats)",
      id: "Score",
    },
  },

  ten: {
    title: "Ten verdicts",
    working: "When this job has ended, you can judge answers to your own questions here:",
    progress: (name: string, done: number, total: number) => `${isolated(name)}, ${done} of ${total}`,
    unknown: "This LLM has no calibration yet. Calibrate on your own questions, or set EIGENCAL_GET_TO_KNOW=true.",
    how: "Judge ten answers to your own questions, and the probability adapts to them.",
    questions: "Questions of your own",
    oneALine: "One per line. Use typical questions, not only easy ones.",
    ask: "Get answers",
    asking: (prompt: string) => `Asking: ${short(prompt)}`,
    judge: "Judge the answers.",
    verdict: (n: number) => `Is answer ${n} right?`,
    moved: (before: number | null, after: number | null | undefined) => {
      const was = before === null ? "unknown" : percent(before);
      const is = after === undefined ? "" : `, now ${after === null ? "unknown" : percent(after)}`;
      return `Probability of being right: ${was}${is}`;
    },
    count: (n: number, enough: number) => (n < enough ? `${n} of ${enough} verdicts` : count(n, "verdict")),
    fit: "Use these verdicts",
    clear: "Start again",
    name: (n: number) => `${n} verdicts`,
    mean: (before: number, after: number) => `The mean probability of these answers moved from ${percent(before)} to ${percent(after)}.`,
  },

  calibrate: {
    title: "Calibrate",
    lead: "A calibration uses labelled questions to correct how confident the scores are.",
    drop: "Drop a file here, or choose one",
    format: "JSON lines or CSV. Each row has a prompt (or messages) and either a reference (the right answer) or an answer with its verdict.",
    faults: "Errors, by line of the file",
    line: "Line",
    field: "Field",
    fault: "Error",
    bad: (name: string) => `Nothing was sent from ${name}. Correct these rows, then choose the file again.`,
    moreFaults: (n: number) => `${count(n, "more error")}.`,
    good: (name: string, rows: number, withAnswers: number, labelled: number) =>
      `${name}: ${count(rows, "row")}, ${withAnswers ? `${withAnswers} with answers` : "answers will be drawn"}${labelled ? `, ${count(labelled, "verdict")} of yours` : ""}.`,
    few: (rows: number, few: number) => `${rows} rows are enough to start. With ${few} or more, the report can say whether the calibration is safe to use.`,
    name: "Name",
    count: "Answers per question",
    countHow: "Leave empty to draw the default number.",
    drawnBy: "Who drew the answers of the rows",
    drawnByMeans: "The calibration applies only to answers from the same source.",
    sourceLabel: "Name of that system (optional)",
    sourceLabelMeans: "Scores of samples with the same source_label use the calibration.",
    byCaller: "a system of yours",
    byService: "this service, with its current settings",
    activate: "Activate",
    ifBetter: "if it is better than the active one",
    never: "not now; I will check it first",
    always: "always",
    startAnyway: "Send; the service checks the rows again",
    force: "Send it anyway",
    start: (rows: number) => `Calibrate on ${count(rows, "row")}`,
    jobs: "Jobs",
    noJobs: "No job so far.",
    job: "Job",
    states: {
      queued: "Waiting for its turn",
      running: "Running",
      succeeded: "Done",
      failed: "Failed",
      cancelled: "Cancelled",
    },
    stages: {
      sampling: "Draw answers",
      comparing: "Let the LLM compare answers",
      checking: "Let the LLM check answers",
      embedding: "Embed",
      fitting: "Fit",
      reporting: "Write the report",
    },
    of: (done: number, total: number) => `${done.toLocaleString("en")} of ${total.toLocaleString("en")}`,
    eta: (seconds: number) => (seconds < 90 ? `about ${Math.ceil(seconds)} s left` : `about ${Math.ceil(seconds / 60)} min left`),
    cancel: "Cancel the job",
    cancelTitle: "Cancel this job?",
    keepRunning: "Keep it running",
    cancelMeans: "Its rows and the answers drawn so far are deleted.",
    leave: "You can leave this page; the job continues.",
    lost: "The connection to the service is lost. This page follows the job again when the service answers.",
    retry: "Retry with the answers already drawn",
    refused: (n: number) => `The LLM server refused ${count(n, "row")}.`,
    open: "Open the calibration",
    look: "Look at the verdicts",
  },

  rows: {
    empty: "The file is empty.",
    oneArray: "The file is one JSON array. Write each row as an object on a line of its own (jq -c '.[]' rows.json).",
    notUtf8: "The file is not text in UTF-8.",
    tooFew: (n: number, min: number) => `only ${count(n, "usable row")}; at least ${min} are needed`,
    noJson: "is not valid JSON; each line must contain one row",
    noObject: "is not a JSON object",
    quotes: "a quote is left open or misplaced",
    lineEnds: "The lines end with a carriage return alone (CR). Save the file with LF or CRLF line ends.",
    unknownColumn: (name: string) => `the header has an unknown column: ${name}`,
    columns: "the header must name the columns prompt (or messages) and reference (or claims, or answer and correct)",
    width: (n: number, of: number) => `has ${count(n, "field")}, the header has ${of}`,
    unknownField: "is not a field",
    bothAsked: "exactly one of prompt and messages is needed; both are given",
    notAsked: "exactly one of prompt and messages is needed; neither is given",
    blank: "must not be blank",
    turns: "must be a list of turns with role (system, user or assistant) and content",
    endsWithAssistant: "must not end with the assistant's turn: that is an answer",
    noReference: "is missing; without it, give answer and correct",
    texts: "must be a list of texts (in CSV: as JSON)",
    text: "must be a text",
    twoSamples: "must hold at least two answers",
    boolean: "must be true or false",
    sameId: (line: number) => `the same id as on line ${line}`,
  },

  calibrations: {
    title: "Calibrations",
    lead: "Each set-up has at most one active calibration. Every score names the calibration that was used.",
    one: "Calibration",
    none: "There is no calibration yet. The service makes the first one when it has got to know the LLM.",
    first: "Calibrate",
    toAll: "All calibrations",
    rows: "Rows",
    rowsOf: (rows: number, samples: number) => `${count(rows, "row")}, ${samples} answers each`,
    error: "Error of lambda_max (projection ECE)",
    fromTo: (before: number | null, after: number | null) =>
      before === null && after === null
        ? "—"
        : `${before === null ? "—" : number(before)} before, ${after === null ? "—" : number(after)} after`,
    promise: "Promise",
    promiseOf: (error: number, coverage: number, samples: number) =>
      `with ${count(samples, "answer")} per question, ${percent(coverage)} of the answers are let through, and at most ${errorPercent(error)} of these are wrong`,
    noPromise: "nothing",
    age: "Made",
    state: (active: boolean, applies: boolean) =>
      active ? (applies ? "Applies now" : "Active for another set-up") : applies ? "Not active" : "Not active; made for another set-up",
    activate: "Activate",
    activateTitle: (name: string) => `Activate “${isolated(name)}”?`,
    activated: (name: string) => `${isolated(name)} is active.`,
    isActive: "It is already active.",
    replaces: (name: string | null) =>
      name === null ? "No calibration is active for its set-up." : `It replaces “${isolated(name)}” for its set-up.`,
    promiseChange: (before: string, after: string) => `Promise now: ${before}. Afterwards: ${after}.`,
    errorChange: (before: number | null, after: number | null) =>
      `Error of lambda_max now: ${before === null ? "none is known" : number(before)}. Afterwards: ${after === null ? "unknown" : number(after)}.`,
    appliesFromNow: (ofCaller: boolean) =>
      ofCaller
        ? "Within two seconds, scores of samples from the same source use it on every replica."
        : "Within two seconds, scores with its set-up use it on every replica.",
    doesNotApply: "It was made for another set-up, so current scores do not change.",
    canGoBack: (name: string) => `You can activate “${isolated(name)}” again.`,
    history: "Active",
    noHistory: "never",
    period: (from: string, until: string | undefined) => (until === undefined ? `since ${when(from)}.` : `${when(from)} to ${when(until)}.`),
    by: (who: string) => `By ${who}.`,
    earlier: (n: number) => count(n, "earlier period"),
    back: (name: string) => `Go back to ${isolated(name)}`,
    export: "Export the rows",
    exportTitle: (name: string) => `Export the rows of “${isolated(name)}”?`,
    exportMeans: (rows: number) =>
      `The file contains the prompts, references, answers and verdicts of ${count(rows, "row")}. Store it where only authorised people can read it.`,
    forget: "Delete the rows",
    forgetTitle: (name: string) => `Delete the rows of “${isolated(name)}”?`,
    forgetMeans: (rows: number) =>
      `Prompts, references and answers of ${count(rows, "row")} are deleted permanently. The calibration and its report stay. Corrected calibrations keep copies of the rows: delete those, too.`,
    forgotten: "The rows of this calibration are not stored.",
    tradeoff: "How much to let through",
    noVerdicts: (samples: number) =>
      `With ${count(samples, "answer")} per question, the verdicts do not allow a promise. The report has the promises of other numbers of answers.`,
    target: (target: number) => `Wrong among those let through: at most ${percent(target)}`,
    targetShort: "Target error",
    answered: (target: number, coverage: number, error: number, samples: number, tokens: number | null) =>
      `With ${count(samples, "answer")} per question and a target error of ${errorPercent(target)}, ${percent(coverage)} of the answers are let through. On held-out rows, ${percent(error)} of these are wrong.${tokens === null ? "" : ` Each question costs ${number(tokens)} tokens.`}`,
    notPromised: (target: number, confidence: number) =>
      `An error of ${errorPercent(target)} cannot be promised with ${percent(confidence)} confidence, so no answer is let through.`,
    curve: "Share of the answers let through, by target error",
    share: "Let through",
    onTheseRows: (rows: number, confidence: number) => `Measured on ${count(rows, "row")}; promises hold with ${percent(confidence)} confidence.`,
    report: "Report",
    reportAlone: "Open the report in a new tab",
  },

  label: {
    title: "Label",
    lead: "Correct the verdicts of a calibration. Choose one:",
    how: "Is the answer right? The most doubtful verdicts come first.",
    none: "There is no calibration of whole answers with stored rows.",
    progress: (at: number, of: number, changed: number) => `${at} of ${of}. ${count(changed, "verdict")} changed.`,
    first: (n: number, of: number) => `The ${n} most doubtful of ${of} rows are shown. The export has all of them.`,
    row: (line: number) => `Row of line ${line}`,
    noQuestion: "(a row without a question)",
    answer: "Answer",
    references: "Reference",
    verdict: "Verdict",
    verdictOf: (correct: boolean) => (correct ? "Right." : "Wrong."),
    byYou: "Decided by you.",
    ofClaims: "Verdicts on claims cannot be corrected here. Correct them in the rows, and calibrate again.",
    rules: {
      given: "Given in the data.",
      equal: "It equals a reference.",
      contains: "It contains a reference.",
      contained: "It is at least half of a reference.",
      spelling: "It is a reference in another spelling.",
      none: "No reference fits.",
    } as Record<string, string>,
    back: "Back",
    end: "All rows have been shown.",
    fit: (n: number) => (n ? `Calibrate with ${count(n, "changed verdict")}` : "Calibrate with your verdicts"),
    fitMeans: "This fits a new calibration. It is not active until you activate it.",
    corrected,
  },
};

// Labelled rows, checked in the browser by the main rules of the service, before anything is sent.
// The service checks all rules again and decides: see service/calibration/rows.py.
import Papa from "papaparse";
import type { RowFault } from "./api";
import { S } from "./strings";

const FIELDS = new Set([
  "prompt",
  "messages",
  "claims",
  "reference",
  "id",
  "samples",
  "logprobs",
  "answer",
  "answer_logprob",
  "correct",
  "logprob",
  "verdict",
]);
const LISTS = new Set(["samples", "messages", "claims", "logprobs", "logprob"]);
export const MIN_ROWS = 10;
export const FEW_ROWS = 100;
const MAX_FAULTS = 20;

export type Checked = { count: number; withAnswers: number; labelled: number; areClaims: boolean; faults: RowFault[]; moreFaults: number };
type Row = Record<string, unknown>;
type Line = { line: number; row?: Row; fault?: string };

/** Return the text of a file. Throws a text that says what is wrong. */
export async function textOf(file: Blob): Promise<string> {
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(await file.arrayBuffer());
  } catch {
    throw new Error(S.rows.notUtf8);
  }
}

/** Check the rows of a file's text. */
export function check(text: string): Checked {
  const faults: RowFault[] = [];
  const lineOfId = new Map<string, number>();
  let count = 0;
  let withAnswers = 0;
  let labelled = 0;
  let forAnswers = 0;
  const start = text.trimStart()[0];
  if (start === undefined) return refused(S.rows.empty);
  if (start === "[") return refused(S.rows.oneArray);
  if (text.includes("\r") && !text.includes("\n")) return refused(S.rows.lineEnds);
  const lines = start === "{" ? jsonLines(text) : csvLines(text);
  for (const { line, row, fault } of lines) {
    const found = row === undefined ? [{ line: line || null, field: null, reason: fault ?? "" }] : faultsOf(row, line, lineOfId);
    faults.push(...found);
    if (row === undefined || found.length) continue;
    count += 1;
    if (Array.isArray(row.samples)) withAnswers += 1;
    if (typeof row.correct === "boolean") labelled += 1;
    const has = (name: string) => row[name] !== undefined && row[name] !== null;
    if (has("reference") || (has("answer") && has("correct"))) forAnswers += 1;
  }
  if (!faults.length && count < MIN_ROWS) faults.push({ line: null, field: null, reason: S.rows.tooFew(count, MIN_ROWS) });
  return { count, withAnswers, labelled, areClaims: count > 0 && forAnswers === 0, faults: faults.slice(0, MAX_FAULTS), moreFaults: Math.max(0, faults.length - MAX_FAULTS) };
}

/** Return the result for a file that cannot be read. */
export function refused(reason: string): Checked {
  return { count: 0, withAnswers: 0, labelled: 0, areClaims: false, faults: [{ line: null, field: null, reason }], moreFaults: 0 };
}

function* jsonLines(text: string): Generator<Line> {
  let line = 0;
  for (const content of text.split("\n")) {
    line += 1;
    if (!content.trim()) continue;
    let value: unknown;
    try {
      value = JSON.parse(content);
    } catch {
      yield { line, fault: S.rows.noJson };
      continue;
    }
    if (value === null || typeof value !== "object" || Array.isArray(value)) yield { line, fault: S.rows.noObject };
    else yield { line, row: value as Row };
  }
}

function* csvLines(text: string): Generator<Line> {
  const records: { line: number; cells: string[] }[] = [];
  let line = 1;
  let at = 0;
  let fault: Line | undefined;
  text = text.replaceAll("\r\n", "\n");
  const head = text.split("\n", 1)[0] ?? "";
  Papa.parse<string[]>(text, {
    newline: "\n",
    skipEmptyLines: false,
    delimiter: [",", ";", "\t"].find((sign) => head.includes(sign)) ?? ",", // as the service does
    step: ({ data, errors, meta }) => {
      const first = line;
      line += (text.slice(at, meta.cursor).match(/\n/g) ?? []).length;
      at = meta.cursor;
      if (errors[0] && errors[0].type === "Quotes") fault ??= { line: first, fault: S.rows.quotes };
      if (data.length > 1 || data[0]) records.push({ line: first, cells: data });
    },
  });
  const header = records.shift()?.cells.map((name) => name.trim()) ?? [];
  const unknown = header.find((name) => name && !FIELDS.has(name) && !/^Unnamed: \d+/.test(name));
  if (unknown !== undefined) {
    yield { line: 0, fault: S.rows.unknownColumn(unknown) };
    return;
  }
  if (!(header.includes("prompt") || header.includes("messages")) || !["reference", "claims", "correct"].some((name) => header.includes(name))) {
    yield { line: 0, fault: S.rows.columns };
    return;
  }
  if (fault) {
    yield fault;
    return;
  }
  for (const { line: first, cells } of records) {
    if (cells.length !== header.length) {
      yield { line: first, fault: S.rows.width(cells.length, header.length) };
      continue;
    }
    const row: Row = {};
    header.forEach((name, index) => {
      const cell = cells[index] ?? "";
      if (FIELDS.has(name) && cell.trim()) row[name] = valueOf(name, cell);
    });
    yield { line: first, row };
  }
}

/** Return the value of a CSV cell. A list that is not JSON stays a text. */
function valueOf(name: string, cell: string): unknown {
  if (name === "correct") {
    const word = cell.trim().toLowerCase();
    return ["true", "1", "1.0", "yes"].includes(word) ? true : ["false", "0", "0.0", "no"].includes(word) ? false : cell;
  }
  if (!LISTS.has(name)) return name === "answer_logprob" ? Number(cell) : cell;
  try {
    return JSON.parse(cell);
  } catch {
    return cell;
  }
}

const isBlank = (value: unknown): boolean => typeof value !== "string" || !value.trim();

function faultsOf(row: Row, line: number, lineOfId: Map<string, number>): RowFault[] {
  const faults: RowFault[] = [];
  const add = (field: string, reason: string) => faults.push({ line, field, reason });
  for (const name of Object.keys(row)) if (!FIELDS.has(name)) add(name, S.rows.unknownField);
  const has = (name: string) => row[name] !== null && name in row;
  if (has("prompt") === has("messages")) add("prompt", has("prompt") ? S.rows.bothAsked : S.rows.notAsked);
  if (has("prompt") && isBlank(row.prompt)) add("prompt", S.rows.blank);
  if (has("messages")) {
    const turns = row.messages;
    const areTurns =
      Array.isArray(turns) &&
      turns.length > 0 &&
      turns.every((turn) => ["system", "user", "assistant"].includes(turn?.role) && typeof turn?.content === "string");
    if (!areTurns) add("messages", S.rows.turns);
    else if (turns.at(-1).role === "assistant") add("messages", S.rows.endsWithAssistant);
  }
  if (!has("reference") && !has("claims") && !(has("answer") && has("correct"))) add("reference", S.rows.noReference);
  if (has("reference")) {
    const references = Array.isArray(row.reference) ? row.reference : [row.reference];
    // SQuAD's answers are objects; the service reads them.
    if (!references.length || references.some((reference) => typeof reference !== "object" && isBlank(reference))) add("reference", S.rows.blank);
  }
  if (has("samples")) {
    const samples = row.samples;
    if (!Array.isArray(samples) || samples.some((sample) => typeof sample !== "string")) add("samples", S.rows.texts);
    else if (samples.length < 2) add("samples", S.rows.twoSamples);
  }
  if (has("correct") && typeof row.correct !== "boolean") add("correct", S.rows.boolean);
  if (has("answer") && typeof row.answer !== "string") add("answer", S.rows.text);
  // JavaScript rounds larger numbers, so that different ids would look the same.
  if (has("id") && (typeof row.id !== "number" || Number.isSafeInteger(row.id))) {
    const id = String(row.id);
    const earlier = lineOfId.get(id);
    if (earlier !== undefined) add("id", S.rows.sameId(earlier));
    else lineOfId.set(id, line);
  }
  return faults;
}

// What each client prints, so that the answers of two servers can be compared field by field.
import { readFileSync } from "node:fs";

export const cases = JSON.parse(readFileSync(new URL("../cases.json", import.meta.url), "utf8"));
export const [baseURL, apiKey, model, ...only] = process.argv.slice(2);
const kinds = {
  text: {},
  tools: { tools: cases.tools, tool_choice: { type: "function", function: { name: "weather" } } },
  json: { response_format: { type: "json_schema", json_schema: cases.schema } },
};

/** The header with the id of the score. */
export function ours(headers) {
  const id = headers instanceof Headers ? headers.get("x-score-id") : headers?.["x-score-id"];
  return id == null ? {} : { "x-score-id": id };
}

/** The only one that is there. */
export function once(found) {
  const there = found.filter((one) => one != null);
  if (there.length > 1) throw new Error(`told ${there.length} times`);
  return there[0] ?? null;
}

/** Two turns by every way of asking, which returns the answer's text and the client's own form of its turns. */
async function conversations(ways) {
  const results = {};
  if (only.length && !only.includes("turns")) return results;
  for (const [name, ask] of Object.entries(ways)) {
    const [history, texts] = [[], []];
    for (const content of cases.turns) {
      history.push({ role: "user", content });
      const [text, ...turns] = await ask([...history]);
      texts.push(text);
      history.push(...turns);
    }
    results[`${name}-turns`] = { texts };
  }
  return results;
}

/** Run every kind of request by every way of asking, one after the other, and print what came. */
export async function tell(ways, more = {}, chats = {}) {
  const results = await conversations(chats);
  // Kinds may be named; none given: all, and what is around them.
  for (const [kind, extra] of Object.entries(kinds)) {
    if (only.length && !only.includes(kind)) continue;
    for (const [name, ask] of Object.entries(ways)) results[`${name}-${kind}`] = await ask(extra, kind);
  }
  if (!only.length) for (const [name, ask] of Object.entries(more)) results[name] = await ask();
  console.log(JSON.stringify(results));
}

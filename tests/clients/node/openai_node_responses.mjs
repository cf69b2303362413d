// openai-node's Responses: `create` in one piece and streamed, `stream()` and `parse()`.
import OpenAI from "openai";
import { apiKey, baseURL, cases, model, once, ours, tell } from "./told.mjs";

const client = new OpenAI({ baseURL, apiKey, maxRetries: 0 });
const { temperature, max_tokens: max_output_tokens } = cases.sampling;
const ask = { model, input: cases.messages, temperature, max_output_tokens };
const kinds = {
  text: {},
  tools: {
    tools: [{ type: "function", ...cases.tools[0].function }],
    tool_choice: { type: "function", name: "weather" },
  },
  json: { text: { format: { type: "json_schema", ...cases.schema } } },
};

const ofResponse = (found) => ({
  text: found.output_text || null,
  calls: found.output.filter(({ type }) => type === "function_call").map((call) => [call.name, call.arguments]),
  finish: found.status,
  usage: [found.usage.input_tokens, found.usage.output_tokens],
});

async function create(_, kind) {
  const { data, response } = await client.responses.create({ ...ask, ...kinds[kind] }).withResponse();
  return { ...ofResponse(data), ways: { body: data.uncertainty ?? null, headers: ours(response.headers) } };
}

async function streamed(_, kind) {
  const { data, response } = await client.responses.create({ ...ask, ...kinds[kind], stream: true }).withResponse();
  let [text, last] = ["", null];
  const body = [];
  for await (const event of data) {
    if (event.type === "response.output_text.delta") text += event.delta;
    if (event.type === "response.completed") last = event.response;
    body.push(event.response?.uncertainty);
  }
  return { ...ofResponse(last), text: text || null, ways: { body: once(body), headers: ours(response.headers) } };
}

async function helper(_, kind) {
  const final = await client.responses.stream({ ...ask, ...kinds[kind] }).finalResponse();
  return { ...ofResponse(final), ways: { body: final.uncertainty ?? null } };
}

async function parsed(_, kind) {
  const found = await client.responses.parse({ ...ask, ...kinds[kind] });
  return { ...ofResponse(found), parsed: found.output_parsed, ways: { body: found.uncertainty ?? null } };
}

async function items(input) {
  const found = await client.responses.create({ ...ask, input });
  return [found.output_text, ...found.output];
}

async function finalItems(input) {
  const found = await client.responses.stream({ ...ask, input }).finalResponse();
  return [found.output_text, ...found.output];
}

async function parsedItems(input) {
  const found = await client.responses.parse({ ...ask, input });
  return [found.output_text, ...found.output];
}

await tell({ create, streamed, helper, parsed }, {}, { items, finalItems, parsedItems });

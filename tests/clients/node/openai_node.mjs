// openai-node: `create` in one piece and streamed, and `stream()`.
import OpenAI from "openai";
import { apiKey, baseURL, cases, model, once, ours, tell } from "./told.mjs";

const client = new OpenAI({ baseURL, apiKey, maxRetries: 0 });
const ask = { model, messages: cases.messages, ...cases.sampling };
const usageToo = { stream: true, stream_options: { include_usage: true } };
const counts = (usage) => (usage ? [usage.prompt_tokens, usage.completion_tokens] : null);

const ofCompletion = (found) => ({
  text: found.choices[0].message.content ?? null,
  calls: (found.choices[0].message.tool_calls ?? []).map((call) => [call.function.name, call.function.arguments]),
  finish: found.choices[0].finish_reason,
  usage: counts(found.usage),
});

async function create(more) {
  const { data, response } = await client.chat.completions.create({ ...ask, ...more }).withResponse();
  return { ...ofCompletion(data), ways: { body: data.uncertainty ?? null, headers: ours(response.headers) } };
}

async function streamed(more) {
  const { data, response } = await client.chat.completions.create({ ...ask, ...usageToo, ...more }).withResponse();
  let [text, finish, usage] = ["", null, null];
  const [calls, body, delta] = [[], [], []];
  for await (const chunk of data) {
    body.push(chunk.uncertainty);
    usage = counts(chunk.usage) ?? usage;
    const choice = chunk.choices[0];
    if (!choice) continue;
    finish = choice.finish_reason ?? finish;
    delta.push(choice.delta.uncertainty);
    text += choice.delta.content ?? "";
    for (const part of choice.delta.tool_calls ?? []) {
      calls[part.index] ??= ["", ""];
      calls[part.index][0] += part.function.name ?? "";
      calls[part.index][1] += part.function.arguments ?? "";
    }
  }
  const ways = { body: once(body), delta: once(delta), headers: ours(response.headers) };
  return { text: text || null, calls, finish, usage, ways };
}

async function helper(more) {
  const stream = client.chat.completions.stream({ ...ask, ...usageToo, ...more });
  const chunks = [];
  stream.on("chunk", (chunk) => chunks.push(chunk.uncertainty));
  const final = await stream.finalChatCompletion();
  const ways = {
    body: final.uncertainty ?? null,
    message: final.choices[0].message.uncertainty ?? null,
    chunk: once(chunks),
  };
  return { ...ofCompletion(final), ways };
}

async function refused() {
  try {
    await client.chat.completions.create({ ...ask, model: "other" });
  } catch (error) {
    return { status: error.status, raised: error.constructor.name, code: String(error.code) };
  }
  return {};
}

async function listed() {
  const models = [];
  for await (const one of client.models.list()) models.push(one.id);
  return { models };
}

async function message(messages) {
  const found = (await client.chat.completions.create({ ...ask, messages })).choices[0].message;
  return [found.content, found];
}

async function parsed(messages) {
  const found = (await client.chat.completions.parse({ ...ask, messages })).choices[0].message;
  return [found.content, found];
}

async function finalMessage(messages) {
  const found = await client.chat.completions.stream({ ...ask, messages }).finalMessage();
  return [found.content, found];
}

await tell({ create, streamed, helper }, { refused, listed }, { message, parsed, finalMessage });

// `generateText` and `streamText` of Vercel's AI SDK, for every provider.
import { generateText, jsonSchema, Output, streamText, tool } from "ai";
import { cases, tell } from "./told.mjs";

const { function: weather } = cases.tools[0];
const kinds = {
  text: {},
  tools: {
    tools: { weather: tool({ description: weather.description, inputSchema: jsonSchema(weather.parameters) }) },
    toolChoice: { type: "tool", toolName: "weather" },
  },
  json: { output: Output.object({ name: cases.schema.name, schema: jsonSchema(cases.schema.schema) }) },
};
const [system, user] = cases.messages;

/** Ask and print everything. `waysOf` reads the uncertainty of a result and, if it was streamed, of its raw chunks. */
export async function run(model, waysOf, options = {}) {
  const settings = {
    model,
    temperature: cases.sampling.temperature,
    maxOutputTokens: cases.sampling.max_tokens,
    maxRetries: 0,
    ...options,
  };
  const ask = (kind) => ({ ...settings, system: system.content, prompt: user.content, ...kinds[kind] });
  const onError = ({ error }) => { throw error; };

  async function told(result, chunks) {
    const [text, calls, finish, usage] = await Promise.all([
      result.text,
      result.toolCalls,
      result.finishReason,
      result.usage,
    ]);
    return {
      text: text || null,
      calls: calls.map((call) => [call.toolName, call.input]),
      finish,
      usage: [usage.inputTokens, usage.outputTokens],
      ways: await waysOf(result, chunks),
    };
  }

  const generate = async (_, kind) => told(await generateText(ask(kind)));

  async function streamed(_, kind) {
    const result = streamText({ ...ask(kind), includeRawChunks: true, onError });
    const chunks = [];
    for await (const part of result.fullStream) if (part.type === "raw") chunks.push(part.rawValue);
    return told(result, chunks);
  }

  async function generated(messages) {
    const result = await generateText({ ...settings, messages });
    return [result.text, ...result.response.messages];
  }

  async function collected(messages) {
    const result = streamText({ ...settings, messages, onError });
    await result.consumeStream();
    return [await result.text, ...(await result.response).messages];
  }

  await tell({ generate, streamed }, {}, { generated, collected });
}

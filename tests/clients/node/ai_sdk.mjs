// Vercel's AI SDK with its provider for OpenAI-compatible servers: `generateText` and `streamText`.
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, jsonSchema, Output, streamText, tool } from "ai";
import { apiKey, baseURL, cases, model, ours, tell } from "./told.mjs";

const metadataExtractor = {
  extractMetadata: async ({ parsedBody }) =>
    parsedBody.uncertainty ? { eigencal: { uncertainty: parsedBody.uncertainty } } : undefined,
  createStreamExtractor: () => {
    let uncertainty;
    return {
      processChunk: (chunk) => (uncertainty = chunk.uncertainty ?? uncertainty),
      buildMetadata: () => (uncertainty ? { eigencal: { uncertainty } } : undefined),
    };
  },
};
const provider = createOpenAICompatible({
  name: "eigencal",
  baseURL,
  apiKey,
  includeUsage: true,
  supportsStructuredOutputs: true,
  metadataExtractor,
});
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
const ask = (kind) => ({
  model: provider.chatModel(model),
  system: system.content,
  prompt: user.content,
  temperature: cases.sampling.temperature,
  maxOutputTokens: cases.sampling.max_tokens,
  maxRetries: 0,
  ...kinds[kind],
});

async function told(result) {
  const [text, calls, finish, usage, metadata, response] = await Promise.all([
    result.text,
    result.toolCalls,
    result.finishReason,
    result.usage,
    result.providerMetadata,
    result.response,
  ]);
  return {
    text: text || null,
    calls: calls.map((call) => [call.toolName, call.input]),
    finish,
    usage: [usage.inputTokens, usage.outputTokens],
    ways: { metadata: metadata?.eigencal?.uncertainty ?? null, headers: ours(response.headers) },
  };
}

const generate = async (_, kind) => told(await generateText(ask(kind)));

async function streamed(_, kind) {
  const result = streamText({ ...ask(kind), onError: ({ error }) => { throw error; } });
  await result.consumeStream();
  return told(result);
}

const chat = (messages) => ({
  model: provider.chatModel(model),
  messages,
  temperature: cases.sampling.temperature,
  maxOutputTokens: cases.sampling.max_tokens,
  maxRetries: 0,
});

async function generated(messages) {
  const result = await generateText(chat(messages));
  return [result.text, ...result.response.messages];
}

async function collected(messages) {
  const result = streamText({ ...chat(messages), onError: ({ error }) => { throw error; } });
  await result.consumeStream();
  return [await result.text, ...(await result.response).messages];
}

await tell({ generate, streamed }, {}, { generated, collected });

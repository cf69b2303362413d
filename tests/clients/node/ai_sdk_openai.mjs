// Vercel's AI SDK with its provider for OpenAI, which calls /v1/responses.
import { createOpenAI } from "@ai-sdk/openai";
import { run } from "./ai_sdk_ways.mjs";
import { apiKey, baseURL, model, once, ours } from "./told.mjs";

const openai = createOpenAI({ baseURL, apiKey });

await run(
  openai(model),
  async (result, chunks) => {
    const response = await result.response;
    const body = chunks ? once(chunks.map((chunk) => chunk.response?.uncertainty)) : response.body.uncertainty ?? null;
    return { body, headers: ours(response.headers) };
  },
  { providerOptions: { openai: { store: false } } },
);

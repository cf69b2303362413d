// Vercel's AI SDK with its provider for OpenAI-compatible servers.
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { run } from "./ai_sdk_ways.mjs";
import { apiKey, baseURL, model, ours } from "./told.mjs";

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

await run(provider.chatModel(model), async (result) => ({
  metadata: (await result.providerMetadata)?.eigencal?.uncertainty ?? null,
  headers: ours((await result.response).headers),
}));

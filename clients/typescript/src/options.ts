import { atLeast } from "./patience.js";
import type { Settings } from "./transport.js";

/** How the service is reached. In Node, `EIGENCAL_URL` and `EIGENCAL_KEY` stand in for what is left out. */
export interface EigencalOptions {
  /** Where the service is: `http://127.0.0.1:8000`. In a browser it may be a path of the page's own origin. */
  baseUrl?: string | undefined;
  /** The score key, or the admin key, if the service has them. */
  key?: string | undefined;
  /** Longest wait for an answer, and in a stream for its next piece: two minutes. Infinity: no limit. */
  timeoutMs?: number | undefined;
  /** How often a call that failed is made again, where that is safe: twice. */
  maxRetries?: number | undefined;
  /** What sends requests, in place of the platform's own. */
  fetch?: typeof fetch | undefined;
}

const DEFAULT_URL = "http://127.0.0.1:8000";
const TIMEOUT_MS = 120_000;
const MAX_RETRIES = 2;

interface Platform {
  process?: { env?: Record<string, string | undefined> };
  location?: { href?: string };
}
const platform = globalThis as Platform;

/** Return the settings of a transport. Raises TypeError where an option cannot be used. */
export function settingsOf(options: EigencalOptions): Settings {
  const env = platform.process?.env ?? {};
  const key = options.key ?? env["EIGENCAL_KEY"] ?? "";
  return {
    baseUrl: baseOf(options.baseUrl ?? (env["EIGENCAL_URL"] || DEFAULT_URL)),
    headers: key ? { authorization: `Bearer ${checked(key)}` } : {},
    timeoutMs: atLeast(1, "timeoutMs", options.timeoutMs ?? TIMEOUT_MS),
    maxRetries: atLeast(0, "maxRetries", options.maxRetries ?? MAX_RETRIES),
    fetch: options.fetch ?? fetch,
  };
}

function baseOf(given: string): string {
  let url: URL;
  try {
    url = new URL(given, platform.location?.href);
  } catch {
    throw new TypeError(`baseUrl is no address: ${JSON.stringify(given)}`);
  }
  if (!/^https?:$/.test(url.protocol)) throw new TypeError("baseUrl must begin with http:// or https://");
  return url.origin + url.pathname.replace(/\/+$/, "");
}

/** What `Headers` says of a header that it refuses would show the key. */
function checked(key: string): string {
  if (!/^[\x21-\x7e]+$/.test(key)) throw new TypeError("key must be printable ASCII without spaces");
  return key;
}

// A redirect is told, not followed: the prompt, and to the same origin the key, would go where the caller has not sent them.
import { EigencalError } from "./errors.js";

const STATUS: ReadonlySet<number> = new Set([301, 302, 303, 307, 308]);
/** What browsers make of a redirect that is not followed: neither status nor address can be read. */
const OPAQUE = "opaqueredirect";

export function isRedirect(response: Response): boolean {
  return response.type === OPAQUE || STATUS.has(response.status);
}

/** Return the error that says where to. */
export function redirected(url: string, response: Response): EigencalError {
  const detail = `${url} redirects to ${targetOf(url, response)}; redirects are not followed: have baseUrl name where the service is`;
  return new EigencalError({ code: "redirected", detail, status: response.status || undefined });
}

function targetOf(url: string, response: Response): string {
  if (response.type === OPAQUE) return "an address that the browser does not tell";
  const told = response.headers.get("location") ?? "";
  try {
    return new URL(told, url).href;
  } catch {
    return JSON.stringify(told);
  }
}

// What the contract says of an operation, by types alone: a route that it lacks does not compile.
import type { components, paths } from "./openapi.js";

type Method = "get" | "post" | "put" | "patch" | "delete";
type OnPath<P extends keyof paths> = {
  [M in Method]: paths[P][M] extends { responses: unknown } ? `${Uppercase<M>} ${P}` : never;
}[Method];

/** A method and a path of the contract, such as `"POST /score"`. */
export type Operation = { [P in keyof paths]: OnPath<P> }[keyof paths];

type Entry<O extends Operation> = O extends `${infer M} ${infer P extends keyof paths}`
  ? paths[P][Lowercase<M> & keyof paths[P]]
  : never;
type Success<O extends Operation> =
  Entry<O> extends { responses: infer R } ? R[keyof R & (200 | 201 | 202)] : never;

/** The JSON that an operation answers with. */
export type Answer<O extends Operation> =
  Success<O> extends { content: { "application/json": infer Body } } ? Body : never;

/** A schema of the contract, by its name. */
export type Schema<Name extends keyof components["schemas"]> = components["schemas"][Name];

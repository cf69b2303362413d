// Writes src/openapi.ts, the types of the contract, from ../openapi.json: `npm run generate`.
import { readFile, writeFile } from "node:fs/promises";
import openapiTS, { astToString } from "openapi-typescript";

const contract = new URL("../../openapi.json", import.meta.url);
const target = process.argv[2] ?? new URL("../src/openapi.ts", import.meta.url);
// Conditions between fields ("`logprobs` only beside `samples`"): the generator makes types of them that
// nothing fits, such as an intersection with an empty object. The service checks them.
const CONDITIONS = ["allOf", "anyOf", "oneOf", "not", "dependentSchemas"];

const document = JSON.parse(await readFile(contract, "utf8"));
for (const schema of Object.values(document.components.schemas)) {
  if (schema.properties) for (const condition of CONDITIONS) delete schema[condition];
}
// Of a request, a field with a default may be left out; of an answer, the contract says which are always there.
const tree = await openapiTS(document, { defaultNonNullable: false });
await writeFile(target, `// Made from ../openapi.json by \`npm run generate\`; changed there alone.\n${astToString(tree)}`);

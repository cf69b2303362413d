// Builds ../static from src: one script, one style sheet, one page, and the licenses of the packages in them.
import { build } from "esbuild";
import { copyFile, readFile, writeFile } from "node:fs/promises";

const out = process.argv[2] ?? "../static";
await build({
  entryPoints: { app: "src/app.tsx" },
  outdir: out,
  bundle: true,
  minify: true,
  format: "esm",
  target: ["es2022"],
  jsx: "automatic",
  jsxImportSource: "preact",
  legalComments: "none", // licenses.txt has them
  logLevel: "warning",
});
await copyFile("src/index.html", `${out}/index.html`);
const licenses = ["papaparse", "preact", "uplot"].map(
  async (name) => `${name}\n\n${(await readFile(`node_modules/${name}/LICENSE`, "utf8")).trim()}\n`,
);
await writeFile(`${out}/licenses.txt`, (await Promise.all(licenses)).join("\n\n"));

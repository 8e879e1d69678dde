#!/usr/bin/env node
// run.mjs <file.ts> [argument …]
import { runPrepared } from "./prepare.mjs";

const [file, ...args] = process.argv.slice(2);
if (file === undefined) {
  process.stderr.write("usage: run.mjs <file.ts> [argument …]\n");
  process.exit(2);
}
await runPrepared(file, args);

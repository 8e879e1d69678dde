#!/usr/bin/env node
import { join } from "node:path";
import { runPrepared } from "./prepare.mjs";

const main = join(import.meta.dirname, "..", "src", "cli", "main.ts");
await runPrepared(main, process.argv.slice(2));

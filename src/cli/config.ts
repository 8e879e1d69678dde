import type { Command } from "commander";
import type { ShownSetting } from "../config/env-reader.ts";
import { showEnvironmentSettings } from "../config/process-settings.ts";
import { contextOf } from "./context.ts";
import { addCommand, addGroup } from "./options.ts";

/** `remit config show`. */
export function registerConfig(program: Command): void {
  const group = addGroup(program, "config", "what this command and a worker here would use");
  addCommand(group, {
    name: "show",
    about: "every setting, and where it comes from; no secret, and nothing needs to run",
    examples: ["remit config show", "remit config show --data-dir .remit --json"],
  }).action((_options: unknown, command: Command) => {
    const context = contextOf(command);
    const { dataDir } = command.optsWithGlobals<{ dataDir?: string }>();
    const { settings, shown, unread } = showEnvironmentSettings({ dataDir });
    const isFlag = dataDir !== undefined;
    context.print({
      json: {
        source: settings.source,
        stackPath: settings.stackPath ?? null,
        flag: isFlag ? "--data-dir" : null,
        settings: shown.map(({ name, value, source }) => ({
          name,
          value,
          source: source.kind,
          from: source.where,
        })),
        unread,
      },
      text: [...settingLines(shown, isFlag), ...unread.map(unreadLine)].join("\n"),
    });
  });
}

function settingLines(shown: readonly ShownSetting[], isFlag: boolean): string[] {
  const values = shown.map(({ value }) => value ?? "(not set)");
  const nameWidth = Math.max(...shown.map(({ name }) => name.length));
  const valueWidth = Math.max(...values.map(({ length }) => length));
  return shown.map((setting, index) => {
    const value = (values[index] ?? "").padEnd(valueWidth);
    return `${setting.name.padEnd(nameWidth)}  ${value}  ${sourceText(setting, isFlag)}`.trimEnd();
  });
}

function sourceText({ name, value, source }: ShownSetting, isFlag: boolean): string {
  const { kind, where } = source;
  if (kind === "default") return value === null ? "" : "default";
  if (kind === "stack") return `stack ${where}${isFlag ? " (--data-dir)" : ""}`;
  if (kind === "profile") return `profile ${where}`;
  return where === name ? "environment" : `environment, ${where}`;
}

function unreadLine(name: string): string {
  return `${name}  is set, and nothing reads it: is it misspelt?`;
}

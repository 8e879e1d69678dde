import { DomainError } from "../domain/errors.ts";

export type Env = Readonly<Record<string, string | undefined>>;

/** Where a value came from, and which variable, file or profile that was; null for a default of our own. */
export interface SettingSource {
  readonly kind: "environment" | "stack" | "profile" | "default";
  readonly where: string | null;
}

/** A setting as it may be shown: no password and no key is in `value`, and null says that there is none. */
export interface ShownSetting {
  readonly name: string;
  readonly value: string | null;
  readonly source: SettingSource;
}

/**
 * Reads settings one by one and keeps every problem until `throwIfWrong`, so that a person mends them in one go. No
 * value is ever repeated in a problem: it may be a secret that went into the wrong variable. Empty counts as not set.
 * It remembers what it was asked for, so `remit config show` can't forget a setting.
 */
export class EnvReader {
  readonly #env: Env;
  readonly #problems: string[] = [];
  readonly #shown = new Map<string, ShownSetting>();

  constructor(env: Env) {
    this.#env = env;
  }

  optional(name: string): string | null {
    const value = this.#read(name);
    this.#note(name, value);
    return value;
  }

  text(name: string, { fallback }: { fallback: string }): string {
    return this.optional(name) ?? this.#fallenBack(name, fallback);
  }

  /** Whether it is set; what it is stays here. */
  secret(name: string): boolean {
    const isSet = this.#read(name) !== null;
    this.#note(name, isSet ? SET : null);
    return isSet;
  }

  required(name: string, { hint = "" }: { hint?: string } = {}): string {
    const value = this.optional(name);
    if (value === null) this.problem(`${name} is not set${hint}`);
    return value ?? "";
  }

  integer(
    name: string,
    { fallback, ...bounds }: { fallback: number; min: number; max: number },
  ): number {
    return this.optionalInteger(name, bounds) ?? this.#fallenBack(name, fallback);
  }

  optionalInteger(name: string, { min, max }: { min: number; max: number }): number | null {
    const value = this.optional(name);
    if (value === null) return null;
    const parsed = /^[0-9]{1,9}$/.test(value) ? Number(value) : Number.NaN;
    if (parsed >= min && parsed <= max) return parsed;
    this.problem(`${name} is not a whole number from ${min} to ${max}`);
    return null;
  }

  oneOf<Value extends string>(
    name: string,
    { fallback, values }: { fallback: Value; values: readonly Value[] },
  ): Value {
    const value = this.optional(name);
    if (value === null) return this.#fallenBack(name, fallback);
    const found = values.find((candidate) => candidate === value);
    if (found === undefined) this.problem(`${name} is not one of ${values.join(", ")}`);
    return found ?? fallback;
  }

  url(name: string, { protocols }: { protocols: readonly string[] }): string | null {
    const value = this.optional(name);
    if (value === null) return null;
    if (URL.canParse(value) && protocols.includes(new URL(value).protocol)) return value;
    this.problem(`${name} is not a URL that starts with ${protocols.join("// or ")}//`);
    return null;
  }

  /** Says what a setting came to be where the variable of its name didn't decide. */
  resolved(name: string, value: string | null, source: SettingSource): void {
    this.#shown.set(name, { name, value: value === null ? null : withoutSecrets(value), source });
  }

  /** Everything that was read or resolved so far. */
  shown(): ShownSetting[] {
    return [...this.#shown.values()];
  }

  /** Variables under our own prefix that nothing has read: most likely misspelt. */
  unread(prefix: string): string[] {
    return Object.keys(this.#env).filter(
      (name) => name.startsWith(prefix) && this.#read(name) !== null && !this.#shown.has(name),
    );
  }

  problems(): readonly string[] {
    return this.#problems;
  }

  problem(text: string): void {
    this.#problems.push(text);
  }

  /** @throws DomainError `usage` that names every problem */
  throwIfWrong(): void {
    if (this.#problems.length === 0) return;
    throw new DomainError("usage", `wrong configuration: ${this.#problems.join("; ")}`, {
      details: { problems: [...this.#problems] },
    });
  }

  #read(name: string): string | null {
    const value = this.#env[name]?.trim();
    return value === undefined || value === "" ? null : value;
  }

  #note(name: string, value: string | null): void {
    if (this.#shown.has(name)) return;
    const source = value === null ? DEFAULT : ({ kind: "environment", where: name } as const);
    this.resolved(name, value, source);
  }

  #fallenBack<Value extends string | number>(name: string, fallback: Value): Value {
    this.resolved(name, String(fallback), DEFAULT);
    return fallback;
  }
}

const SET = "set";
const DEFAULT: SettingSource = { kind: "default", where: null };
const HIDDEN = "***";
const SECRET_PARAMETER = /pass|secret|token|key/i;

/** A URL without its password, and without its user where that may be a token. */
function withoutSecrets(value: string): string {
  if (!value.includes("://")) return value;
  if (!URL.canParse(value)) return HIDDEN;
  const url = new URL(value);
  const before = url.href;
  if (url.password !== "") url.password = HIDDEN;
  if (url.username !== "" && url.protocol.startsWith("http")) url.username = HIDDEN;
  const names = new Set(url.searchParams.keys());
  for (const name of names) {
    if (SECRET_PARAMETER.test(name) && name !== "sslkey") url.searchParams.set(name, HIDDEN);
  }
  // The driver's spelling of a URL differs from what was written; only a hidden part is a reason to show that one.
  return url.href === before ? value : url.href;
}

import { DomainError } from "../domain/errors.ts";

export type Env = Readonly<Record<string, string | undefined>>;

/**
 * Reads settings one by one and keeps every problem until `throwIfWrong`, so that a person mends them in one go. No
 * value is ever repeated in a problem: it may be a secret that went into the wrong variable. Empty counts as not set.
 */
export class EnvReader {
  readonly #env: Env;
  readonly #problems: string[] = [];

  constructor(env: Env) {
    this.#env = env;
  }

  optional(name: string): string | null {
    const value = this.#env[name]?.trim();
    return value === undefined || value === "" ? null : value;
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
    return this.optionalInteger(name, bounds) ?? fallback;
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
    if (value === null) return fallback;
    const found = values.find((candidate) => candidate === value);
    if (found === undefined) this.problem(`${name} is not one of ${values.join(", ")}`);
    return found ?? fallback;
  }

  url(name: string, { protocols }: { protocols: readonly string[] }): string | null {
    const value = this.optional(name);
    if (value === null) return null;
    if (!URL.canParse(value) || !protocols.includes(new URL(value).protocol)) {
      this.problem(`${name} is not a URL that starts with ${protocols.join("// or ")}//`);
    }
    return value;
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
}

/**
 * All that a child takes over: where programs are, and where Node keeps compiled code (bin/prepare.mjs), without which a
 * start takes half as long again. Anything else of the caller's could change what it runs.
 */
export function inheritedEnvironment(): Record<string, string> {
  const { PATH = "/usr/local/bin:/usr/bin:/bin", NODE_COMPILE_CACHE } = process.env;
  return { PATH, ...(NODE_COMPILE_CACHE === undefined ? {} : { NODE_COMPILE_CACHE }) };
}

const SWC = {
  jsc: { target: "es2024", parser: { syntax: "typescript" } },
  module: { type: "commonjs" },
};

/** @type {import("jest").Config} */
module.exports = {
  testEnvironment: "node",
  roots: ["<rootDir>/test"],
  testMatch: ["**/*.test.ts"],
  // No promise is about wall-clock time: this only ends what hangs, also on a busy machine.
  testTimeout: 30_000,
  transform: { "^.+\\.[jt]s$": ["@swc/jest", SWC] },
  // These come as ES modules only.
  transformIgnorePatterns: ["/node_modules/(?!(p-limit|yocto-queue)/)"],
};

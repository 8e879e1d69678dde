/** Preloaded into a worker (`--import`): all that asks for the time gets it with CHAOS_CLOCK_AHEAD_MS added. */
const aheadMs = Number(process.env["CHAOS_CLOCK_AHEAD_MS"] ?? "0");

globalThis.Date = new Proxy(Date, {
  construct: (target, args: unknown[], newTarget) =>
    Reflect.construct(
      target,
      args.length === 0 ? [target.now() + aheadMs] : args,
      newTarget,
    ) as Date,
  get: (target, property) =>
    property === "now" ? () => target.now() + aheadMs : (Reflect.get(target, property) as unknown),
});

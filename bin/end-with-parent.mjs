// Preloaded into the child of prepare.mjs. A parent that was killed with -9 can't pass anything on, but the channel to
// it closes, and that is taken as the wish to stop in order.
const STOP_MS_MAX = 30_000;

process.once("disconnect", () => {
  process.kill(process.pid, "SIGTERM");
  setTimeout(() => process.exit(143), STOP_MS_MAX).unref();
});
// The channel alone must not keep the program running.
process.channel?.unref();

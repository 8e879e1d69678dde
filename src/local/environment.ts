/** The one variable that a child of the stack takes over; anything else of the caller's could change what it runs. */
export function searchPath(): { PATH: string } {
  return { PATH: process.env["PATH"] ?? "/usr/local/bin:/usr/bin:/bin" };
}

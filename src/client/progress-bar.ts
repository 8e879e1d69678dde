/** Where a bar is drawn: a terminal's stderr. */
export interface Terminal {
  readonly isTTY?: boolean | undefined;
  readonly columns?: number | undefined;
  readonly write: (text: string) => unknown;
}

/** A bar below the lines that are printed; draws nothing where there is no terminal. */
export interface ProgressBar {
  /** Takes the bar away so that a line can be printed. */
  readonly clear: () => void;
  readonly draw: (done: number) => void;
}

export function createProgressBar(terminal: Terminal, total: number): ProgressBar {
  if (terminal.isTTY !== true || total === 0)
    return { clear: () => undefined, draw: () => undefined };
  return {
    clear: () => void terminal.write(CLEAR_LINE),
    draw: (done) => {
      const count = ` ${done}/${total} ${Math.floor((done / total) * 100)} %`;
      const width = Math.max(0, Math.min(WIDTH_MAX, (terminal.columns ?? 80) - count.length - 3));
      const filled = Math.round((done / total) * width);
      terminal.write(`${CLEAR_LINE}[${"█".repeat(filled)}${"·".repeat(width - filled)}]${count}`);
    },
  };
}

const CLEAR_LINE = "\r\u001b[2K";
const WIDTH_MAX = 40;

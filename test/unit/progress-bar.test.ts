import { createProgressBar } from "../../src/client/progress-bar.ts";

function terminal(isTTY: boolean): {
  isTTY: boolean;
  columns: number;
  text: string;
  write(text: string): void;
} {
  return {
    isTTY,
    columns: 30,
    text: "",
    write(text) {
      this.text += text;
    },
  };
}

describe("createProgressBar", () => {
  test("shows how many of how many, within the terminal's width", () => {
    const screen = terminal(true);
    createProgressBar(screen, 200).draw(50);
    expect(screen.text).toMatch(/^\r.*\[█+·+\] 50\/200 25 %$/u);
    expect(screen.text.length).toBeLessThanOrEqual(30 + 5);
  });

  test("writes nothing where there is no terminal", () => {
    const file = terminal(false);
    const bar = createProgressBar(file, 2);
    bar.draw(1);
    bar.clear();
    expect(file.text).toBe("");
  });
});

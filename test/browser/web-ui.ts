import { mkdirSync } from "node:fs";
import { join } from "node:path";
import type { Browser, Page } from "playwright-core";

/** Temporal's Web UI 2.54 as a person uses it: the tabs and texts of one browser page. */
export interface WebUi {
  /** Searches the workflow list; the ids that it then shows, newest first. */
  readonly search: (query: string) => Promise<string[]>;
  /** Opens a workflow of the list by a click on its id. */
  readonly open: (workflowId: string) => Promise<void>;
  /** What the tab "User Metadata" says, rendered. */
  readonly metadata: () => Promise<Metadata>;
  readonly searchAttributes: () => Promise<Record<string, unknown>>;
  /** The rows of the event history, oldest first, each as one line of what is to be read there. */
  readonly history: () => Promise<string[]>;
  readonly pendingActivities: () => Promise<string>;
  /** Writes docs/screenshots/<name>.png where `REMIT_UPDATE_DOCS=1`: the window, or the whole table in it. */
  readonly picture: (name: string, of?: "window" | "table") => Promise<void>;
  readonly close: () => Promise<void>;
}

export interface Metadata {
  readonly summary: string;
  readonly details: string;
  readonly currentDetails: string;
}

const WINDOW = { width: 1280, height: 800 };
/** So large that no row is cut and nothing has to be scrolled. */
const TABLE_WINDOW = { width: 1700, height: 1300 };
const SCREENSHOTS_DIR = join(import.meta.dirname, "..", "..", "docs", "screenshots");

/** Opens the workflow list of a namespace. */
export async function openWebUi(
  browser: Browser,
  { uiUrl, namespace }: { uiUrl: string; namespace: string },
): Promise<WebUi> {
  const context = await browser.newContext({
    viewport: WINDOW,
    locale: "en-US",
    timezoneId: "UTC",
    colorScheme: "light",
  });
  const page = await context.newPage();
  const list = `${uiUrl}/namespaces/${encodeURIComponent(namespace)}/workflows`;
  const openTab = async (name: string): Promise<void> => {
    await page.getByTestId(`${name}-tab`).click();
  };

  return {
    async search(query) {
      await page.goto(list);
      await page.getByTestId("toggle-manual-query").click();
      const input = page.getByTestId("workflow-manual-search-input");
      await input.fill(query);
      await input.press("Enter");
      await page.waitForURL(/[?&]query=/);
      await page.getByText(/^1–\d+ of \d+$/).waitFor();
      const labels = await page.getByText(/^Select Workflow /).allInnerTexts();
      return labels.map((label) => label.replace(/^Select Workflow /, "").trim());
    },
    async open(workflowId) {
      await page.getByRole("link", { name: workflowId, exact: true }).click();
      await page.getByTestId("workflow-id-heading").getByText(workflowId).waitFor();
    },
    async metadata() {
      await openTab("user-metadata");
      await page.locator("iframe#user-metadata-current-details").waitFor();
      const [summary, details, currentDetails] = await Promise.all(
        ["summary", "details", "current-details"].map(async (part) => await rendered(page, part)),
      );
      return {
        summary: summary ?? "",
        details: details ?? "",
        currentDetails: currentDetails ?? "",
      };
    },
    async searchAttributes() {
      await openTab("search-attributes");
      const text = await page.getByRole("textbox", { name: "Search Attributes" }).innerText();
      return JSON.parse(text) as Record<string, unknown>;
    },
    async history() {
      await openTab("history");
      const rows = page.getByTestId("event-summary-row");
      await rows.filter({ hasText: "Workflow Execution Started" }).waitFor();
      const lines = (await rows.allInnerTexts()).map((row) => row.replaceAll(/\s+/g, " ").trim());
      return lines.toReversed();
    },
    async pendingActivities() {
      await openTab("pending-activities");
      await page.getByText("Last Worker Identity").waitFor();
      return (await page.locator("body").innerText()).replaceAll(/\s+/g, " ");
    },
    async picture(name, of = "window") {
      if (process.env["REMIT_UPDATE_DOCS"] !== "1") return;
      mkdirSync(SCREENSHOTS_DIR, { recursive: true });
      const path = join(SCREENSHOTS_DIR, `${name}.png`);
      // Away from whatever shows a hint under the pointer.
      await page.mouse.move(1, 1);
      if (of === "window") {
        await page.screenshot({ path });
        return;
      }
      await page.setViewportSize(TABLE_WINDOW);
      await page.getByRole("table").last().screenshot({ path });
      await page.setViewportSize(WINDOW);
    },
    async close() {
      await context.close();
    },
  };
}

/** A text that the page renders as Markdown in a frame; empty where it has none. */
async function rendered(page: Page, part: string): Promise<string> {
  const selector = `iframe#user-metadata-${part}`;
  if ((await page.locator(selector).count()) === 0) return "";
  const paragraph = page.frameLocator(selector).locator("p").first();
  await paragraph.waitFor();
  const text = await page.frameLocator(selector).locator("body").innerText();
  return text.replaceAll(/\s+/g, " ").trim();
}

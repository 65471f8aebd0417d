/** What `C` copies. */

import { duration } from "../format";
import type { EventDetails } from "../types";

/** The server's Markdown row with the link appended as its last cell. */
export function markdownRow(event: EventDetails, link: string): string {
  const row = event.markdown?.trim() || `| ${event.name} | ${event.lane_label} | ${duration(event.duration_ns)} |`;
  const lines = row.split("\n");
  const last = lines.at(-1)!;
  lines[lines.length - 1] = `${last.replace(/\s*\|?\s*$/, "")} | [open](${link}) |`;
  return lines.join("\n");
}

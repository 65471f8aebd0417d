/** The part of the state a link carries: profile, view, time range, selection, marks, base of the comparison. */

import type { Range } from "./types";

export type View = "timeline" | "analysis" | "operators" | "compare";

/** A named moment of the profile. */
export interface Mark {
  /** nanoseconds relative to the profile's origin */
  at: number;
  name: string;
}

export interface UrlState {
  profile: string | null;
  view: View;
  range: Range | null;
  event: string | null;
  base: string | null;
  /** name of the step, "all", or null for the server's default range */
  scope: string | null;
  /** in order of time */
  marks: Mark[];
}

const VIEWS: readonly View[] = ["timeline", "analysis", "operators", "compare"];

export function parseUrl(search: string): UrlState {
  const q = new URLSearchParams(search);
  const time = /^(-?\d+)~(-?\d+)$/.exec(q.get("t") ?? "");
  const range = time ? { start: Number(time[1]), end: Number(time[2]) } : null;
  return {
    profile: q.get("profile") || null,
    view: VIEWS.find((v) => v === q.get("view")) ?? "timeline",
    range: range && range.end > range.start ? range : null,
    event: /^-?\d+$/.test(q.get("event") ?? "") ? q.get("event") : null,
    base: q.get("base") || null,
    scope: q.get("scope") || null,
    marks: q.getAll("mark").flatMap((text) => {
      const mark = /^(-?\d{1,15})(?: (.+))?$/.exec(text);
      return mark ? [{ at: Number(mark[1]), name: mark[2] ?? "" }] : [];
    }),
  };
}

export function formatUrl(state: UrlState): string {
  const q = new URLSearchParams();
  if (state.profile) q.set("profile", state.profile);
  if (state.view !== "timeline") q.set("view", state.view);
  if (state.range) q.set("t", `${Math.floor(state.range.start)}~${Math.ceil(state.range.end)}`);
  if (state.event) q.set("event", state.event);
  if (state.base && state.view === "compare") q.set("base", state.base);
  if (state.scope) q.set("scope", state.scope);
  for (const mark of state.marks) q.append("mark", `${mark.at} ${mark.name}`.trim());
  const text = q.toString();
  return text ? `?${text}` : "";
}

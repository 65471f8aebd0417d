/** The keyboard: one place that says what each key does; the help overlay shows the same list. */

import { createSignal } from "solid-js";
import { api } from "./api";
import { timelineCommands } from "./commands";
import { markdownRow } from "./panels/markdown";
import { app } from "./state";

export const [helpOpen, setHelpOpen] = createSignal(false);
export const [healthOpen, setHealthOpen] = createSignal(false);

export const KEYS: readonly { group: string; keys: string; text: string }[] = [
  { group: "Move", keys: "A D · ← →", text: "earlier, later" },
  { group: "Move", keys: "W S · ↑ ↓", text: "zoom in, zoom out (at the pointer)" },
  { group: "Move", keys: "wheel", text: "scroll the lanes; with Shift through time; with Ctrl zoom at the pointer" },
  { group: "Move", keys: "drag", text: "on the lanes moves; on ruler or overview zooms to what you drag over" },
  { group: "Move", keys: "F", text: "centre and fit the selection; without one, everything" },
  { group: "Select", keys: "click", text: "a slice shows its chain; double click fits it" },
  { group: "Select", keys: ", .", text: "previous, next slice in the lane" },
  { group: "Select", keys: "[ ] · J K", text: "step along the dependency chain" },
  { group: "Select", keys: "N", text: "next gap, largest first" },
  { group: "Select", keys: "/", text: "search names; /text/ is a regular expression" },
  { group: "Select", keys: "Esc", text: "one level out" },
  { group: "Other", keys: "Shift+drag", text: "measure: time, busy share, number of slices" },
  { group: "Other", keys: "M", text: "mark the start of the selection, or the pointer's time without one" },
  { group: "Other", keys: "E", text: "engines and DMA of the selected execution, and back" },
  { group: "Other", keys: "O", text: "colour by operator or by slice name" },
  { group: "Other", keys: "C", text: "copy the selection as a Markdown row with its link" },
  { group: "Other", keys: "Backspace", text: "the view before, as the browser's Back" },
  { group: "Other", keys: "?", text: "this list" },
];

async function stepInLane(direction: "next" | "previous"): Promise<void> {
  const profile = app.profileId();
  const selected = app.selected();
  if (!profile) return;
  if (!selected) {
    const first = timelineCommands()?.firstSlice();
    if (first) app.select(first);
    return;
  }
  const next = await api.neighbour(profile, selected, direction).catch(() => null);
  if (!next) return app.tell(`No ${direction} slice in this lane`);
  const v = app.visible();
  const inside = next.end > v.start && next.start < v.end;
  app.select(next.id, inside ? {} : { recentre: next });
}

function stepInChain(by: number): void {
  const chain = app.selected() ? app.ok(app.chain) : undefined;
  if (!chain) return;
  const at = chain.events.findIndex((e) => e.id === app.selected());
  const next = chain.events[at + by];
  if (next) app.select(next.id, { recentre: next });
  else app.tell(by > 0 ? "This is the end of the chain" : "This is the cause of the chain");
}

async function fitSelection(): Promise<void> {
  const id = app.selected();
  const profile = app.profileId();
  const gap = app.gap();
  if (id && profile) {
    const known = app.ok(app.details);
    // pressed right after the click, before the details are here
    const event = known?.id === id ? known : await api.event(profile, id).catch(() => null);
    if (event && app.selected() === id) app.select(id, { fit: event });
  } else if (gap) app.setRange({ start: gap.start - gap.duration_ns / 4, end: gap.end + gap.duration_ns / 4 }, "step");
  else app.showHome();
}

function levelOut(): void {
  if (helpOpen()) setHelpOpen(false);
  else if (healthOpen()) setHealthOpen(false);
  else if (timelineCommands()?.clearMeasure()) return;
  else if (app.selected() || app.gap()) app.select(null);
  else app.showHome();
}

export function onKey(e: KeyboardEvent): void {
  const target = e.target instanceof Element ? e.target : document.body;
  if (target.closest("input, select, textarea") || e.ctrlKey || e.metaKey || e.altKey) return;
  const onControl = target.closest("button, a, [role=button]") !== null;
  const timeline = app.view() === "timeline" ? timelineCommands() : null;
  const run = (action: () => unknown): void => {
    e.preventDefault();
    void action();
  };
  switch (e.key) {
    case "?":
      return run(() => setHelpOpen(!helpOpen()));
    case "/":
      return run(() => document.querySelector<HTMLInputElement>("#search")?.focus());
    case "Escape":
      return run(levelOut);
    case "c":
      return run(() => {
        const event = app.selected() ? app.ok(app.details) : undefined;
        return event ? app.copy(markdownRow(event, app.link()), "Selection") : app.tell("Nothing is selected");
      });
  }
  if (!timeline || document.querySelector("dialog[open]")) return;
  switch (e.key) {
    case "w":
    case "ArrowUp":
      return run(() => timeline.zoom(1 / 1.25));
    case "s":
    case "ArrowDown":
      return run(() => timeline.zoom(1.25));
    case "a":
    case "ArrowLeft":
      return run(() => timeline.pan(-0.12));
    case "d":
    case "ArrowRight":
      return run(() => timeline.pan(0.12));
    case "f":
      return run(fitSelection);
    case ",":
      return run(() => stepInLane("previous"));
    case ".":
      return run(() => stepInLane("next"));
    case "[":
    case "k":
      return run(() => stepInChain(-1));
    case "]":
    case "j":
      return run(() => stepInChain(1));
    case "n":
      return run(timeline.nextGap);
    case "m":
      return run(timeline.mark);
    case "e":
      return run(() => {
        if (app.openOuter()) return;
        const id = app.selected();
        return id ? app.openEngines(id) : app.tell("Select an execution to see its engines");
      });
    case "o":
      return run(() => {
        app.setColourBy(app.colourBy() === "operator" ? "name" : "operator");
        app.tell(`Colours by ${app.colourBy() === "operator" ? "operator" : "slice name"}`);
      });
    case "Backspace":
      return onControl ? undefined : run(() => history.back());
  }
}

/** What to look at first: where each step's time went, what would make it faster, overlap, ranks, memory, launches. */

import { createResource, For, type JSX, onCleanup, Show } from "solid-js";
import { api } from "../api";
import { css, slotColor, textOn } from "../colors";
import { bytes, duration, markdownTable, nanoseconds, percent, pretty } from "../format";
import { Working } from "../panels/panel";
import { app } from "../state";
import type { Analysis, CurveRow, InsightRow, ProfileCard, SplitRow } from "../types";
import { curves } from "./memory";
import { RooflineCard } from "./roofline";
import { type Bar, bars, CATEGORIES, totals } from "./split";

const BARS_SHOWN = 48;

type Row = Record<string, string | number | boolean | null>;

export function AnalysisView(props: { card: ProfileCard }) {
  return (
    <div class="analysis" data-testid="analysis">
      <Section card={props.card} name="steps" title="Where the time of each step went" wide>
        {(found) => <Steps rows={found.rows as unknown as SplitRow[]} />}
      </Section>
      <Section card={props.card} name="insights" title="What would make it faster" facts={false} wide>
        {(found) => <Insights card={props.card} found={found} />}
      </Section>
      <RooflineCard card={props.card} />
      <Section card={props.card} name="hierarchy" title="Instructions by layer and operator" wide>
        {(found) => <Table rows={nested(found.rows)} columns={HIERARCHY} />}
      </Section>
      <Section card={props.card} name="overlap" title="Communication and copies behind computing" scoped>
        {(found) => <Table rows={found.rows} columns={OVERLAP} />}
      </Section>
      <Section card={props.card} name="ranks" title="Ranks side by side">
        {(found) => <Table rows={found.rows} columns={RANKS} />}
      </Section>
      <Section card={props.card} name="memory" title="Memory in use">
        {(found) => (
          <>
            <MemoryCurve rows={found.curve ?? []} span={props.card.span_ns} />
            <Table rows={found.rows} columns={MEMORY} />
            <Show when={found.at_peak?.length}>
              <h4>Alive at the peak, by operator that allocated it</h4>
              <Table rows={found.at_peak!} columns={AT_PEAK} />
            </Show>
          </>
        )}
      </Section>
      <Section card={props.card} name="launches" title="Launch calls" scoped>
        {(found) => <Table rows={found.rows} columns={LAUNCHES} />}
      </Section>
      <Section card={props.card} name="throttling" title="Throttling">
        {(found) => <Table rows={found.rows} columns={THROTTLING} />}
      </Section>
    </div>
  );
}

function Section(props: {
  card: ProfileCard;
  name: string;
  title: string;
  /** about the chosen step rather than the whole recording */
  scoped?: boolean;
  facts?: boolean;
  wide?: boolean;
  children: (found: Analysis) => JSX.Element;
}) {
  let asking: AbortController | undefined;
  const [found, { refetch }] = createResource(
    () => ({ p: props.card.id, range: props.scoped ? app.home() : null }),
    ({ p, range }) => {
      asking?.abort(); // nobody waits for the answer about another range
      asking = new AbortController();
      return api.analysis(p, props.name, range, asking.signal);
    },
  );
  onCleanup(() => asking?.abort());
  return (
    <section
      class="card"
      classList={{ wide: props.wide }}
      aria-label={props.title}
      data-testid={`analysis-${props.name}`}
    >
      <h3>
        {props.title}
        <Show when={app.ok(found)?.range && props.scoped}>
          <span class="dim normal">{app.ok(found)!.range}</span>
        </Show>
      </h3>
      <Working of={found} stop={() => asking?.abort()} again={() => void refetch()}>
        <Show when={app.ok(found)}>
          {(f) => (
            <Show when={!f().reason} fallback={<p class="dim reason-text">{pretty(f().reason)}</p>}>
              <Show when={props.facts !== false}>
                <For each={f().facts}>{(fact) => <p class="fact">{pretty(fact)}</p>}</For>
              </Show>
              {props.children(f())}
              <Show when={props.name !== "steps" && props.name !== "insights"}>
                <p class="dim small">share: of {f().share_of}</p>
              </Show>
            </Show>
          )}
        </Show>
      </Working>
    </section>
  );
}

// --- steps -----------------------------------------------------------------------------------------------------------

const known = new Map(CATEGORIES.map((c) => [c.name, c]));

/** Work has a hue; idle time is hatched, the denser the later in the list, so that no two look alike side by side. */
function fill(name: string): JSX.CSSProperties {
  const category = known.get(name);
  if (category?.hue !== null && category?.hue !== undefined) {
    const color = slotColor(category.hue, app.theme());
    return { background: css(color), color: css(textOn(color)) };
  }
  const gap = 3 + (CATEGORIES.findIndex((c) => c.name === name) % 4) * 3;
  const angle = 45 + (CATEGORIES.findIndex((c) => c.name === name) % 2) * 90;
  return {
    background: `repeating-linear-gradient(${angle}deg, color-mix(in srgb, var(--dim) 60%, var(--chip)) 0 1.5px, var(--chip) 1.5px ${gap + 1.5}px)`,
    color: "var(--text)",
  };
}

function Steps(props: { rows: SplitRow[] }) {
  const all = () => bars(props.rows);
  const text = () =>
    markdownTable(
      ["Step", "Span", ...totals(props.rows).map((t) => t.text)],
      all().map((bar) => [
        bar.label,
        duration(bar.span_ns),
        ...totals(props.rows).map((t) => percent(shareOf(bar, t.name))),
      ]),
    );
  return (
    <>
      <ul class="split">
        <For each={all().slice(0, BARS_SHOWN)}>
          {(bar) => (
            <li data-testid="split-bar">
              <button
                type="button"
                class="mono split-label"
                title="Show this step on the timeline"
                disabled={bar.step < 0}
                onClick={() => toStep(bar.step)}
              >
                {bar.label}
              </button>
              <div class="split-bar" role="img" aria-label={described(bar)}>
                <For each={bar.parts}>
                  {(part) => (
                    <div
                      class="split-part"
                      title={`${known.get(part.name)?.text ?? part.name}: ${nanoseconds(part.time_ns)}, ${percent(part.to - part.from)} of the step`}
                      style={{ width: `${(part.to - part.from) * 100}%`, ...fill(part.name) }}
                    />
                  )}
                </For>
              </div>
              <span class="mono number">{duration(bar.span_ns)}</span>
            </li>
          )}
        </For>
      </ul>
      <Show when={all().length > BARS_SHOWN}>
        <p class="dim small">… {all().length - BARS_SHOWN} more (neuronscope steps)</p>
      </Show>
      <ul class="split-legend">
        <For each={totals(props.rows)}>
          {(t) => (
            <li title={nanoseconds(t.time_ns)}>
              <span class="swatch" style={fill(t.name)} aria-hidden="true" />
              {t.text} <span class="mono dim">{percent(t.share)}</span>
            </li>
          )}
        </For>
        <li class="grow" />
        <li>
          <button type="button" class="quiet" onClick={() => app.copy(text(), "Table")}>
            Copy table
          </button>
        </li>
      </ul>
      <p class="dim small">shares of the steps' spans, each from its start on the host to the end of its device work</p>
    </>
  );
}

const shareOf = (bar: Bar, name: string): number =>
  bar.parts.filter((p) => p.name === name).reduce((sum, p) => sum + p.to - p.from, 0);

const described = (bar: Bar): string =>
  `${bar.label}, ${duration(bar.span_ns)}: ${bar.parts.map((p) => `${known.get(p.name)?.text ?? p.name} ${percent(p.to - p.from)}`).join(", ")}`;

function toStep(step: number): void {
  const name = app.readyCard()?.steps.find((s) => s.name.endsWith(`#${step}`))?.name;
  if (name) app.setScope(name);
  app.setView("timeline");
}

// --- insights --------------------------------------------------------------------------------------------------------

function Insights(props: { card: ProfileCard; found: Analysis }) {
  const rows = () => props.found.rows as unknown as InsightRow[];
  const [title, rest] = [
    (i: number) => (props.found.facts[i] ?? "").split(": ")[0]!,
    (i: number) => (props.found.facts[i] ?? "").split(": ").slice(1).join(": "),
  ];
  return (
    <>
      <ol class="insights">
        <For each={rows()}>
          {(row, i) => (
            <li data-testid="insight" data-rule={row.rule}>
              <p>
                <strong>{title(i())}</strong>: {pretty(rest(i()))}
              </p>
              <p class="dim small">bound: {row.formula}</p>
              <ul class="evidence">
                <For each={row.evidence}>
                  {(one) => (
                    <li>
                      <button
                        type="button"
                        title={`${one.name}: ${nanoseconds(one.ns)}. Show it on the timeline`}
                        onClick={() => app.open(props.card.id, { view: "timeline", event: one.event_id })}
                      >
                        <span class="mono">{duration(one.ns)}</span> <span class="evidence-name">{one.name}</span>
                      </button>
                    </li>
                  )}
                </For>
                <Show when={row.count > row.evidence.length}>
                  <li class="dim">of {row.count.toLocaleString("en-US")}</li>
                </Show>
              </ul>
            </li>
          )}
        </For>
      </ol>
      <p class="dim small">
        A bound is what can be gained at most; bounds of different rules overlap and don't add up. Shares are of{" "}
        {props.found.share_of}.
      </p>
    </>
  );
}

// --- memory ----------------------------------------------------------------------------------------------------------

const CURVE_W = 600;
const CURVE_H = 90;

function MemoryCurve(props: { rows: CurveRow[]; span: number }) {
  const drawn = () => curves(props.rows, props.span, CURVE_W, CURVE_H);
  const color = (i: number): string => css(slotColor(i, app.theme()));
  const dash = (i: number): string | undefined => [undefined, "7 3", "2 3", "9 3 2 3"][i];
  return (
    <Show when={drawn().length}>
      <figure class="memory-curve" data-testid="memory-curve">
        <svg
          viewBox={`0 0 ${CURVE_W} ${CURVE_H}`}
          preserveAspectRatio="none"
          role="img"
          aria-label={`Memory over time: ${drawn()
            .map((c) => `${c.label} up to ${bytes(c.peak)}`)
            .join("; ")}`}
        >
          <For each={drawn()}>{(c, i) => <path d={c.path} stroke={color(i())} stroke-dasharray={dash(i())} />}</For>
        </svg>
        <figcaption class="dim small">
          <For each={drawn()}>
            {(c, i) => (
              <span class="curve-key">
                <svg width="22" height="8" aria-hidden="true">
                  <path d="M0 4H22" stroke={color(i())} stroke-dasharray={dash(i())} />
                </svg>
                {c.label} <span class="mono">{bytes(c.peak)}</span>
              </span>
            )}
          </For>
          <span>whole recording, {duration(props.span)}; one scale from 0</span>
        </figcaption>
      </figure>
    </Show>
  );
}

// --- tables ----------------------------------------------------------------------------------------------------------

interface Column {
  key: string;
  title: string;
  hint?: string;
}

/** The largest groups below those that hold them, as many as a table shows. */
function nested(rows: Row[]): Row[] {
  const least = rows.map((r) => Number(r.active_ns)).sort((a, b) => b - a)[ROWS_SHOWN - 1] ?? 0;
  return rows
    .filter((r) => Number(r.active_ns) >= least)
    .map((r) => ({ ...r, name: `${"\u2003".repeat(Number(r.depth) - 1)}${r.name}` }));
}

const HIERARCHY: Column[] = [
  { key: "name", title: "layer, HLO operator, opcode" },
  { key: "instructions", title: "instructions" },
  { key: "active_ns", title: "active", hint: "durations of the instructions added up" },
  { key: "tensor_ns", title: "Tensor" },
  { key: "vector_ns", title: "Vector" },
  { key: "scalar_ns", title: "Scalar" },
  { key: "gpsimd_ns", title: "GpSimd" },
  { key: "sync_ns", title: "Sync" },
  { key: "hbm_bytes", title: "HBM" },
  { key: "share", title: "share" },
];
const THROTTLING: Column[] = [
  { key: "kind", title: "" },
  { key: "core", title: "core" },
  { key: "periods", title: "periods" },
  { key: "time_ns", title: "time" },
  { key: "limit_share", title: "limit", hint: "utilization allowed meanwhile" },
  { key: "share", title: "share" },
];
const OVERLAP: Column[] = [
  { key: "category", title: "" },
  { key: "rank", title: "rank" },
  { key: "device", title: "device" },
  { key: "executions", title: "count" },
  { key: "time_ns", title: "time", hint: "union of intervals" },
  { key: "hidden_ns", title: "hidden", hint: "while something computed on the same device" },
  { key: "exposed_ns", title: "exposed" },
  { key: "share", title: "share hidden" },
];
const RANKS: Column[] = [
  { key: "rank", title: "rank" },
  { key: "step_ns", title: "step", hint: "median span" },
  { key: "compute_ns", title: "computing" },
  { key: "communication_ns", title: "communication" },
  { key: "wait_ns", title: "waits", hint: "in collectives, for the last rank to start" },
  { key: "share", title: "share waiting" },
  { key: "last", title: "last", hint: "collectives this rank starts last" },
  { key: "caused_ns", title: "caused", hint: "how much later than the last but one, summed" },
  { key: "offset_ns", title: "clock", hint: "offset that aligns the ends of collectives" },
  { key: "residual_ns", title: "residual", hint: "median error of the alignment" },
];
const MEMORY: Column[] = [
  { key: "place", title: "" },
  { key: "rank", title: "rank" },
  { key: "series", title: "series" },
  { key: "peak_bytes", title: "peak" },
  { key: "peak_step", title: "in step" },
  { key: "last_bytes", title: "at the end" },
  { key: "share", title: "share" },
];
const AT_PEAK: Column[] = [
  { key: "name", title: "operator" },
  { key: "rank", title: "rank" },
  { key: "place", title: "place" },
  { key: "allocations", title: "allocations" },
  { key: "alive_bytes", title: "alive" },
  { key: "share", title: "of the peak" },
];
const LAUNCHES: Column[] = [
  { key: "name", title: "call" },
  { key: "calls", title: "calls" },
  { key: "executions", title: "executions" },
  { key: "call_median_ns", title: "call", hint: "median on the host" },
  { key: "delay_median_ns", title: "delay", hint: "median, from the start of the call to that of its work" },
  { key: "executions_shorter_than_call", title: "shorter", hint: "executions shorter than the call" },
  { key: "share", title: "share" },
];

const ROWS_SHOWN = 24;
const TEXTS = new Set(["category", "place", "series", "name", "kind"]);

function cell(key: string, value: Row[string] | undefined): string {
  if (value === null || value === undefined) return "–";
  if (typeof value !== "number") return key === "category" ? String(value).replaceAll("_", " ") : String(value);
  if (key.endsWith("_ns")) return duration(value);
  if (key.endsWith("_bytes")) return bytes(value);
  if (key === "share" || key === "limit_share") return percent(value);
  return value === -1 && (key === "peak_step" || key === "rank") ? "–" : value.toLocaleString("en-US");
}

function Table(props: { rows: Row[]; columns: Column[] }) {
  const columns = () => props.columns.filter((c) => c.key !== "rank" || props.rows.some((r) => Number(r.rank) >= 0));
  return (
    <>
      <table class="analysis-table">
        <thead>
          <tr>
            <For each={columns()}>
              {(c) => (
                <th scope="col" classList={{ number: !TEXTS.has(c.key) }} title={c.hint}>
                  {c.title}
                </th>
              )}
            </For>
          </tr>
        </thead>
        <tbody>
          <For each={props.rows.slice(0, ROWS_SHOWN)}>
            {(row) => (
              <tr>
                <For each={columns()}>
                  {(c) => (
                    <td
                      class="mono"
                      classList={{ number: !TEXTS.has(c.key), name: TEXTS.has(c.key) }}
                      title={
                        typeof row[c.key] === "number" && c.key.endsWith("_ns")
                          ? nanoseconds(Number(row[c.key]))
                          : String(row[c.key] ?? "")
                      }
                    >
                      {cell(c.key, row[c.key])}
                    </td>
                  )}
                </For>
              </tr>
            )}
          </For>
        </tbody>
      </table>
      <Show when={props.rows.length > ROWS_SHOWN}>
        <p class="dim small">… {props.rows.length - ROWS_SHOWN} more on the command line</p>
      </Show>
    </>
  );
}

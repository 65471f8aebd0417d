/** Several profiles at one scale, the sentence that explains the difference, and its terms, which sum exactly. */

import { createMemo, createResource, createSignal, For, onCleanup, onMount, Show } from "solid-js";
import { api } from "../api";
import { css, darker, textOn } from "../colors";
import { bytes, duration, markdownTable, nanoseconds, plural, pretty, signedMicroseconds } from "../format";
import { Failure } from "../panels/panel";
import { app } from "../state";
import { fitText, SANS, textWidth } from "../timeline/text";
import { ticks } from "../timeline/ticks";
import type { ComparedExecution, ComparedProfile, Comparison } from "../types";
import { RooflineChart } from "./roofline";

export function CompareView() {
  const ids = () => (app.ok(app.profiles) ?? []).map((p) => p.id);
  const base = () => {
    const wanted = app.base();
    return wanted && ids().includes(wanted) ? wanted : ids()[0];
  };
  const [comparison] = createResource(
    () => (ids().length > 1 && base() ? { ids: ids(), base: base()! } : null),
    (q) => api.compare(q.ids, q.base),
  );
  return (
    <div class="compare" data-testid="compare">
      <Show
        when={ids().length > 1}
        fallback={
          <p class="empty-note">
            One profile is open, so there is nothing to compare. Open several:{" "}
            <code>neuronscope view FIRST SECOND</code>.
          </p>
        }
      >
        <Failure of={comparison}>
          <Show when={app.ok(comparison)}>{(c) => <Loaded data={c()} />}</Show>
        </Failure>
      </Show>
    </div>
  );
}

function Loaded(props: { data: Comparison }) {
  const base = () => props.data.profiles.find((p) => p.id === props.data.base) ?? props.data.profiles[0]!;
  const others = () => props.data.profiles.filter((p) => p.id !== props.data.base);
  const [chosen, setChosen] = createSignal<string | null>(null);
  const other = () => others().find((p) => p.id === chosen()) ?? others()[0];
  /** The term whose part of each execution is highlighted above. */
  const [term, setTerm] = createSignal<string | null>(null);
  const sentence = () => {
    const o = other();
    if (!o?.sentence) return props.data.sentence;
    return others().length > 1
      ? `${base().name} against ${o.name}: ${o.sentence.charAt(0).toLowerCase()}${o.sentence.slice(1)}`
      : o.sentence;
  };
  return (
    <>
      <Show when={props.data.warnings.length}>
        <div class="warning" role="note" data-testid="compare-warnings">
          <For each={props.data.warnings}>{(w) => <p>{pretty(w)}</p>}</For>
        </div>
      </Show>
      <Lanes data={props.data} base={base()} term={term()} />
      <section class="compare-lower">
        <h2 class="sentence" data-testid="compare-sentence">
          {pretty(sentence())}
        </h2>
        <Table data={props.data} base={base()} chosen={other()?.id ?? null} choose={setChosen} />
        <div class="compare-cards">
          <Show when={other()}>{(o) => <Terms base={base()} other={o()} term={term()} choose={setTerm} />}</Show>
          <Show when={props.data.roofline}>
            {(r) => (
              <section class="card" aria-label="Roofline">
                <h3>
                  Roofline, one dot per executable <span class="dim normal">{r().target}</span>
                </h3>
                <RooflineChart data={r()} />
              </section>
            )}
          </Show>
        </div>
        <p class="panel-foot">{pretty(app.readyCard()?.made_by.notes.join(" · ") ?? "")}</p>
      </section>
    </>
  );
}

/** Width of an element, followed as it changes. */
function useWidth(): { ref: (el: HTMLElement) => void; width: () => number } {
  const [width, setWidth] = createSignal(0);
  let element: HTMLElement | undefined;
  onMount(() => {
    const observer = new ResizeObserver(() => setWidth(element!.clientWidth));
    observer.observe(element!);
    setWidth(element!.clientWidth);
    onCleanup(() => observer.disconnect());
  });
  return {
    ref: (el) => {
      element = el;
    },
    width,
  };
}

const shortName = (op: string): string => op.replace(/^\w+::/, "");

/** Whether launch cost and program are known apart. */
const split = (e: ComparedExecution): boolean => (e.launch_ns ?? 0) > 0;

/** From where to where, relative to its start, an execution (or the time before it) counts for a term. */
function partOf(term: string, e: ComparedExecution, first: boolean): { from: number; to: number } | null {
  const launch = Math.max(0, e.launch_ns ?? 0);
  const part =
    term === "launches"
      ? { from: 0, to: launch }
      : term === "engines and DMA"
        ? { from: launch, to: e.duration_ns }
        : term === "gaps"
          ? { from: first ? 0 : -e.gap_before_ns, to: 0 }
          : { from: 0, to: e.duration_ns };
  return part.to > part.from ? part : null;
}

interface Piece {
  execution: ComparedExecution;
  x: number;
  w: number;
  count: number;
}

/** Executions on screen; those that share a pixel are one piece with a count. */
function pieces(list: ComparedExecution[], scale: number): Piece[] {
  const result: Piece[] = [];
  for (const execution of list) {
    const x = execution.start * scale;
    const w = Math.max(1, execution.duration_ns * scale);
    const last = result.at(-1);
    if (last && x < last.x + 1 && w <= 1.5) {
      last.count += 1;
      last.w = Math.max(last.w, x + w - last.x);
    } else result.push({ execution, x, w, count: 1 });
  }
  return result;
}

const LANE_H = 34;

function Lanes(props: { data: Comparison; base: ComparedProfile; term: string | null }) {
  const { ref, width } = useWidth();
  const endOf = (p: ComparedProfile): number =>
    p.executions_list.reduce((m, e) => Math.max(m, e.start + e.duration_ns), 0);
  const span = createMemo(() => Math.max(1, ...props.data.profiles.map(endOf)) * 1.03);
  const scale = () => Math.max(1, width()) / span();
  return (
    <section class="compare-upper" aria-label="Device lanes at one scale">
      <h1>{plural(props.data.profiles.length, "profile")}, one scale</h1>
      <p class="dim">aligned at the first dispatch · device lanes shown, hosts folded</p>
      <div class="compare-lanes">
        <div />
        <div class="compare-ruler" ref={ref}>
          <svg width={width()} height="20" aria-hidden="true">
            <For each={ticks(0, span(), 0, width()).filter((t) => t.at * scale() < width() - 50)}>
              {(t) => (
                <text class="axis-text mono" x={t.at * scale() + 3} y="13">
                  {t.label}
                </text>
              )}
            </For>
          </svg>
        </div>
        <For each={props.data.profiles}>
          {(p) => {
            const less = () => endOf(props.base) - endOf(p);
            return (
              <>
                <button
                  type="button"
                  class="compare-label"
                  data-testid="compare-label"
                  title={`Open ${p.name}`}
                  onClick={() => app.open(p.id, { view: "timeline" })}
                >
                  <span class="mono strong">{p.name}</span>
                  <span class="mono number" title={nanoseconds(p.device_time_ns)}>
                    {duration(p.device_time_ns, { estimated: p.estimated_ns > 0 })}
                  </span>
                  <span class="dim small">{plural(p.executions, "execution")}</span>
                </button>
                <div class="compare-lane">
                  <svg
                    width={width()}
                    height={LANE_H + 18}
                    classList={{ "one-term": props.term !== null }}
                    role="img"
                    aria-label={`${p.name}: ${plural(p.executions, "execution")}`}
                  >
                    <Hatch id={`hatch-${p.id}`} />
                    <For each={ticks(0, span(), 0, width())}>
                      {(t) => <line class="grid" x1={t.at * scale()} x2={t.at * scale()} y1="0" y2={LANE_H + 18} />}
                    </For>
                    <For each={pieces(p.executions_list, scale())}>
                      {(piece) => <Block piece={piece} profile={p} scale={scale()} y={9} height={LANE_H} />}
                    </For>
                    <Show when={props.term}>{(term) => <Highlight term={term()} profile={p} scale={scale()} />}</Show>
                    <Show when={p.id !== props.base.id && p.executions > 0 && less() * scale() > 4}>
                      <line
                        class="better-line"
                        x1={endOf(p) * scale() + 6}
                        x2={endOf(props.base) * scale()}
                        y1={LANE_H / 2 + 9}
                        y2={LANE_H / 2 + 9}
                      />
                      <Show when={less() * scale() > 120}>
                        <text
                          class="better-text"
                          x={((endOf(p) + endOf(props.base)) / 2) * scale()}
                          y={LANE_H / 2 + 2}
                          text-anchor="middle"
                        >
                          ends {duration(less())} earlier
                        </text>
                      </Show>
                    </Show>
                    <line
                      class="base-line"
                      x1={endOf(props.base) * scale()}
                      x2={endOf(props.base) * scale()}
                      y1="0"
                      y2={LANE_H + 18}
                    />
                  </svg>
                </div>
              </>
            );
          }}
        </For>
      </div>
    </section>
  );
}

function Hatch(props: { id: string }) {
  return (
    <defs>
      <pattern id={props.id} width="8" height="8" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
        <rect width="1.8" height="8" fill="#fff" opacity="0.28" />
      </pattern>
    </defs>
  );
}

/** The parts of a profile's executions that make up a term, in full colour over the faded rest. */
function Highlight(props: { term: string; profile: ComparedProfile; scale: number }) {
  const parts = () =>
    props.profile.executions_list.flatMap((e, i) => {
      const part = partOf(props.term, e, i === 0);
      return part ? [{ e, x: (e.start + part.from) * props.scale, w: (part.to - part.from) * props.scale }] : [];
    });
  return (
    <For each={parts()}>
      {(part) => (
        <g class="lit" data-testid="lit">
          <Show when={props.term !== "gaps"}>
            <rect x={part.x} y="9" width={Math.max(2, part.w)} height={LANE_H} fill={app.cssColor(part.e.op)} />
          </Show>
          <rect
            class="lit-edge"
            x={part.x}
            y="8"
            width={Math.max(2.5, part.w)}
            height={LANE_H + 2}
            fill={props.term === "launches" ? `url(#hatch-${props.profile.id})` : "none"}
          />
          <Label op={part.e.op} x={part.x} width={part.w} y={9} height={LANE_H} />
        </g>
      )}
    </For>
  );
}

/** The operator's name, shortened to the width; nothing where not even four characters fit. */
function Label(props: { op: string; x: number; width: number; y: number; height: number }) {
  const name = () => fitText(shortName(props.op), props.width - 14, (text) => textWidth(`500 12px ${SANS}`, text));
  return (
    <Show when={name()}>
      <text
        data-testid="compare-name"
        x={props.x + 8}
        y={props.y + props.height / 2 + 4}
        fill={css(textOn(app.color(props.op)))}
      >
        {name()}
      </text>
    </Show>
  );
}

function Block(props: { piece: Piece; profile: ComparedProfile; scale: number; y: number; height: number }) {
  const e = () => props.piece.execution;
  const fill = () => app.color(e().op);
  const launch = () => Math.min(props.piece.w, Math.max(0, e().launch_ns ?? 0) * props.scale);
  return (
    // biome-ignore lint/a11y/noStaticElementInteractions: a shortcut; the same slice is reached by opening the profile
    <g
      class="block"
      data-testid="compare-execution"
      onClick={() => app.open(props.profile.id, { view: "timeline", event: e().event_id })}
    >
      <title>
        {props.piece.count > 1
          ? `${props.piece.count} executions here, the first is ${e().op}`
          : `${e().op}: ${duration(e().duration_ns)}${split(e()) ? ` = launch ${duration(e().launch_ns)} + engines and DMA ${duration(e().program_ns)}` : ""}; gap before ${duration(e().gap_before_ns)}`}
      </title>
      <rect
        x={props.piece.x + 0.5}
        y={props.y + 0.5}
        width={Math.max(1, props.piece.w - 1)}
        height={props.height - 1}
        rx={props.piece.w > 6 ? 2 : 0}
        fill={css(fill())}
        stroke={props.piece.w > 4 ? css(darker(fill())) : "none"}
      />
      <Show when={launch() > 2}>
        <rect
          x={props.piece.x + 1}
          y={props.y + 1}
          width={launch() - 1}
          height={props.height - 2}
          fill={`url(#hatch-${props.profile.id})`}
        />
      </Show>
      <Label op={e().op} x={props.piece.x} width={props.piece.w} y={props.y} height={props.height} />
    </g>
  );
}

/** One profile's span drawn as its parts: every launch, every program, every gap. */
function Parts(props: { profile: ComparedProfile; spanMax: number }) {
  const { ref, width } = useWidth();
  const first = () => props.profile.executions_list[0]?.start ?? 0;
  const scale = () => Math.max(0, width() - 2) / props.spanMax;
  const color = () =>
    app.color(props.profile.ops.find((o) => o.device_time_ns > 0)?.name ?? props.profile.executions_list[0]?.op);
  return (
    <div ref={ref} class="parts">
      <svg
        width={width()}
        height="22"
        role="img"
        aria-label={`launches ${duration(props.profile.launch_ns)}, engines and DMA ${duration(props.profile.program_ns)}, gaps ${duration(props.profile.gaps_ns)}`}
      >
        <Hatch id={`parts-${props.profile.id}`} />
        <line class="gap-line" x1="0" x2={props.profile.span_ns * scale()} y1="11" y2="11" />
        <For each={pieces(props.profile.executions_list, scale())}>
          {(piece) => {
            const x = () => piece.x - first() * scale();
            const launch = () =>
              piece.count > 1 || !split(piece.execution)
                ? piece.w
                : Math.min(piece.w, piece.execution.launch_ns! * scale());
            const rest = () => Math.max(piece.execution.program_ns! > 0 ? 1.5 : 0, piece.w - launch());
            return (
              <>
                <rect
                  x={x()}
                  y="2.5"
                  width={Math.max(1, launch())}
                  height="17"
                  rx={launch() > 6 ? 1.5 : 0}
                  fill={css(color())}
                  stroke={launch() > 4 ? css(darker(color())) : "none"}
                />
                <Show when={launch() > 2 && split(piece.execution)}>
                  <rect x={x()} y="2.5" width={launch()} height="17" fill={`url(#parts-${props.profile.id})`} />
                </Show>
                <Show when={piece.count === 1 && split(piece.execution)}>
                  <rect class="program" x={x() + launch()} y="2.5" width={rest()} height="17" />
                </Show>
              </>
            );
          }}
        </For>
      </svg>
    </div>
  );
}

function Table(props: {
  data: Comparison;
  base: ComparedProfile;
  chosen: string | null;
  choose: (id: string) => void;
}) {
  const anySplit = () => props.data.profiles.some((p) => p.executions_list.some(split));
  const launchStatus = () =>
    [...new Set(props.data.profiles.filter((p) => p.executions_list.some(split)).map((p) => p.launch_status))].join(
      ", ",
    );
  const spanMax = () => Math.max(1, ...props.data.profiles.map((p) => p.span_ns));
  /** "5.8" both for 5.8 times faster and, with the word beside it, for 5.8 times slower. */
  const ratio = (p: ComparedProfile): string => {
    if (p.ratio === null || p.ratio <= 0) return "–";
    const times = p.ratio < 1 ? 1 / p.ratio : p.ratio;
    return `${times >= 99.95 ? times.toFixed(0) : times.toFixed(1)}×`;
  };
  const verdict = (p: ComparedProfile): string =>
    p.id === props.base.id || !p.ratio ? "" : p.ratio > 1 ? "faster" : p.ratio < 1 ? "slower" : "same";
  const move = (p: ComparedProfile): string =>
    `${bytes(p.bytes_moved)}${p.bytes_at_hbm_peak_ns === null ? "" : ` · ${duration(p.bytes_at_hbm_peak_ns)}`}`;
  const approx = (p: ComparedProfile) => ({ estimated: p.estimated_ns > 0 });
  const markdown = (): string =>
    markdownTable(
      ["profile", "device time", `vs ${props.base.name}`, "span", "self CPU", "executions", "bytes · at HBM peak"],
      props.data.profiles.map((p) => [
        p.name,
        duration(p.device_time_ns, approx(p)),
        `${ratio(p)} ${verdict(p)}`.trim(),
        duration(p.span_ns),
        duration(p.self_cpu_ns),
        String(p.executions),
        move(p),
      ]),
    );
  return (
    <>
      <table class="compare-table">
        <thead>
          <tr>
            <th scope="col" class="left">
              <button type="button" class="quiet" onClick={() => app.copy(markdown(), "Table")}>
                Copy table
              </button>
            </th>
            <th scope="col">device time</th>
            <th scope="col">vs {props.base.name}</th>
            <th scope="col">span</th>
            <th scope="col">self CPU</th>
            <th scope="col">executions</th>
            <th scope="col">bytes · at HBM peak</th>
            <th scope="col" class="left parts-head">
              span = {anySplit() ? "launches + engines and DMA" : "device busy"} + gaps
            </th>
          </tr>
        </thead>
        <tbody>
          <For each={props.data.profiles}>
            {(p) => (
              <tr data-testid="compare-row" data-profile={p.id} classList={{ selected: p.id === props.chosen }}>
                <th scope="row" class="mono left">
                  <button
                    type="button"
                    class="row-name"
                    aria-pressed={p.id === props.chosen}
                    title={p.id === props.base.id ? "The base of the comparison" : "Explain this difference below"}
                    onClick={() => p.id !== props.base.id && props.choose(p.id)}
                  >
                    {p.name}
                  </button>
                  <Show when={p.id !== props.base.id} fallback={<span class="base-mark">base</span>}>
                    <button
                      type="button"
                      class="quiet make-base"
                      onClick={() => app.setBase(p.id)}
                      aria-label={`Make ${p.name} the base`}
                    >
                      make base
                    </button>
                  </Show>
                </th>
                <td class="mono strong" title={nanoseconds(p.device_time_ns)}>
                  {duration(p.device_time_ns, approx(p))}
                </td>
                <td class={`mono strong ${verdict(p)}`}>
                  {ratio(p)} <span class="small">{verdict(p)}</span>
                </td>
                <td class="mono dim" title={nanoseconds(p.span_ns)}>
                  {duration(p.span_ns)}
                </td>
                <td class="mono dim" title={nanoseconds(p.self_cpu_ns)}>
                  {duration(p.self_cpu_ns)}
                </td>
                <td class="mono dim">{p.executions.toLocaleString("en-US")}</td>
                <td class="mono dim">{move(p)}</td>
                <td class="left">
                  <Parts profile={p} spanMax={spanMax()} />
                </td>
              </tr>
            )}
          </For>
        </tbody>
      </table>
      <p class="legend">
        <Show
          when={anySplit()}
          fallback={
            <>
              <span class="legend-busy" /> device busy
            </>
          }
        >
          <span class="legend-launch" /> launch cost, one per execution ({launchStatus()}){" "}
          <span class="legend-program" /> engines + DMA (simulated)
        </Show>
        <span class="legend-gap" /> gap
      </p>
    </>
  );
}

function Terms(props: {
  base: ComparedProfile;
  other: ComparedProfile;
  term: string | null;
  choose: (term: string | null) => void;
}) {
  const title = () =>
    `${props.base.name} → ${props.other.name}, span ${duration(props.base.span_ns)} → ${duration(props.other.span_ns)}`;
  const markdown = (): string =>
    markdownTable(
      [title(), "", "difference"],
      [
        ...props.other.terms.map((t) => [
          `${t.name} ${pretty(t.text)}`,
          pretty(t.detail),
          signedMicroseconds(t.delta_ns),
        ]),
        ["sum", "", signedMicroseconds(sum())],
      ],
    );
  const sum = () => props.other.terms.reduce((n, t) => n + t.delta_ns, 0);
  const exact = () => sum() === props.other.delta_span_ns;
  return (
    <section class="card terms" aria-label="Terms of the difference" data-testid="compare-terms">
      <header class="card-head">
        <h3>{title()}</h3>
        <button type="button" class="quiet" onClick={() => app.copy(markdown(), "Terms")}>
          Copy terms
        </button>
      </header>
      <table>
        <tbody>
          <For each={props.other.terms}>
            {(t) => (
              <tr
                data-testid="compare-term"
                data-name={t.name}
                data-delta-ns={t.delta_ns}
                classList={{ selected: props.term === t.name }}
                onClick={() => props.choose(props.term === t.name ? null : t.name)}
              >
                <th scope="row">
                  <button
                    type="button"
                    class="term-name"
                    aria-pressed={props.term === t.name}
                    title="Highlight its part of the executions above"
                  >
                    {t.name} {pretty(t.text)}
                  </button>
                </th>
                <td class="dim">{pretty(t.detail)}</td>
                <td class="mono strong number" title={nanoseconds(t.delta_ns)}>
                  {signedMicroseconds(t.delta_ns)}
                </td>
              </tr>
            )}
          </For>
        </tbody>
        <tfoot>
          <tr data-testid="compare-sum" data-delta-ns={sum()}>
            <th scope="row">sum</th>
            <td class="dim">
              {exact()
                ? "exact, in nanoseconds"
                : `the spans differ by ${signedMicroseconds(props.other.delta_span_ns)}: report this`}
            </td>
            <td class="mono strong number" title={nanoseconds(sum())}>
              {signedMicroseconds(sum())}
            </td>
          </tr>
        </tfoot>
      </table>
      <p class="small dim">
        Computed from the two profiles; negative is less time than {props.base.name}. A line highlights its slices
        above.
      </p>
    </section>
  );
}

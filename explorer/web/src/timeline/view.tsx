/** The timeline's page part: overview, ruler, labelled lanes, tooltip; pointer and wheel. Keys are in keys.ts. */

import { createEffect, createMemo, createResource, createSignal, For, on, onCleanup, onMount, Show } from "solid-js";
import { ApiError, api, isLoss, pending } from "../api";
import { setTimelineCommands } from "../commands";
import { duration, nanoseconds, percent, plural, pretty } from "../format";
import { recentre, zoomRange } from "../range";
import { app, trackOf } from "../state";
import type { EventCard, Gap, ProfileCard, Range } from "../types";
import { createTimeline, type Item, type Timeline } from "./controller";
import { layoutOf } from "./layout";
import { Marks } from "./marks";

export const LABEL_WIDTH = 262;

export function TimelineView(props: { card: ProfileCard }) {
  let scroller!: HTMLDivElement;
  let overview!: HTMLCanvasElement;
  let ruler!: HTMLCanvasElement;
  let under!: HTMLCanvasElement;
  let slices!: HTMLCanvasElement;
  let overlay!: HTMLCanvasElement;
  let timeline: Timeline | undefined;

  const [folded, setFolded] = createSignal<ReadonlySet<string>>(new Set());
  const [opened, setOpened] = createSignal<ReadonlySet<number>>(new Set());
  const [size, setSize] = createSignal({ width: 0, height: 0 });
  const [hover, setHover] = createSignal<{ item: Item; x: number; y: number } | null>(null);
  const [measure, setMeasure] = createSignal<Range | null>(null);
  const [measuring, setMeasuring] = createSignal(false);
  const [brush, setBrush] = createSignal<Range | null>(null);
  const [error, setError] = createSignal("");
  const [firstTile, setFirstTile] = createSignal(false);
  const [drawn, setDrawn] = createSignal(false);
  const roomy = createMemo(() => layoutOf(props.card.groups, folded(), opened()));
  // rather close together than the device's lanes, which come last, out of sight
  const crowded = createMemo(() => size().height > 0 && roomy().height > size().height);
  const layout = createMemo(() => (crowded() ? layoutOf(props.card.groups, folded(), opened(), true) : roomy()));
  const colour = createMemo(() => {
    const by = app.colourBy();
    const color = app.color;
    app.theme(); // a new function when the theme changes
    return (op: string | null, name: string) => color(by === "operator" ? op : name || op);
  });
  const gapById = createMemo(() => new Map((app.ok(app.gaps) ?? []).map((g) => [g.id, g])));

  const width = createMemo(() => Math.round(size().width));
  const [overviewData, { refetch: refetchOverview }] = createResource(
    () => (width() > 0 ? { p: props.card.id, range: app.homeView(), width: width() } : null),
    ({ p, range, width }) => api.overview(p, range, width),
  );
  /** Busy share of the measured time, exactly, once the drag is over. */
  const [measuredBusy] = createResource(
    () => (measure() && !measuring() ? { p: props.card.id, range: measure()! } : null),
    ({ p, range }) => api.overview(p, range, 1),
  );
  /** The measurement in words, drawn on the lanes and read out. */
  const measured = (): string => {
    const m = measure();
    if (!m) return "";
    drawn();
    const tracks = measuring() ? [] : (app.ok(measuredBusy)?.tracks ?? []);
    const busy = tracks.find((t) => t.kind === "device") ?? tracks[0];
    return [
      `Δ ${duration(m.end - m.start)}`,
      ...(busy ? [`${busy.kind === "device" ? "device" : "host"} busy ${percent(busy.busy[0] ?? 0)}`] : []),
      plural(timeline?.countIn(m) ?? 0, "slice"),
    ].join(" · ");
  };
  const problem = (): string => {
    const failed: unknown = overviewData.state === "errored" ? overviewData.error : null;
    return error() || (failed instanceof ApiError && !isLoss(failed) ? failed.message : "");
  };

  onMount(() => {
    timeline = createTimeline(
      { overview, ruler, under, slices, overlay },
      api.tile,
      (problem) => {
        if (isLoss(problem)) return;
        if (problem) setError(problem instanceof ApiError ? problem.message : String(problem));
        else {
          setError("");
          setFirstTile(true);
        }
      },
      setDrawn,
    );
    const measureSize = (): void => {
      const box = { width: scroller.clientWidth - LABEL_WIDTH, height: scroller.clientHeight };
      setSize(box);
      timeline!.resize(box.width, box.height);
    };
    const observer = new ResizeObserver(measureSize);
    observer.observe(scroller);
    measureSize();
    onCleanup(() => {
      observer.disconnect();
      timeline!.dispose();
      setTimelineCommands(null);
      window.__neuronscope = undefined;
    });
    window.__neuronscope = {
      slices: () =>
        timeline!.visibleItems().map((item) => ({
          ...item,
          trackLabel: trackOf(props.card, item.track)?.short ?? "",
        })),
      labels: () => timeline!.labels(),
      idle: () => timeline!.idle() && app.seeded(),
      renderer: timeline.renderer,
    };
  });

  createEffect(() => {
    if (!app.seeded()) return;
    timeline?.update({
      card: props.card,
      layout: layout(),
      visible: app.visible(),
      home: app.home(),
      homeView: app.homeView(),
      whole: app.whole(),
      chain: app.selected() ? (app.ok(app.chain) ?? null) : null,
      selected: app.selected(),
      selectedGap: app.gap()?.id ?? null,
      theme: app.theme(),
      colour: colour(),
      overview: app.ok(overviewData) ?? null,
      hover: hover()?.item ?? null,
      measure: measure(),
      measureText: measured(),
      marks: app.marks(),
      brush: brush(),
    });
  });

  const showRow = (trackId: number): void => {
    const row = layout().byTrack.get(trackId);
    if (!row) return;
    if (row.top < scroller.scrollTop) scroller.scrollTop = row.top - 8;
    else if (row.top + row.height > scroller.scrollTop + scroller.clientHeight)
      scroller.scrollTop = row.top + row.height - scroller.clientHeight + 8;
  };
  createEffect(
    on(
      () => app.ok(app.details),
      (event) => event && event.id === app.selected() && showRow(event.track_id),
    ),
  );

  // --- gaps --------------------------------------------------------------------------------------------------------
  const selectGap = (gap: Gap): void => {
    app.select(null, { gap });
    const v = app.visible();
    if (gap.start < v.start || gap.end > v.end) app.setRange(recentre(v, gap), "step");
    showRow(gap.track_id);
  };
  const nextGap = (): void => {
    const gaps = app.ok(app.gaps) ?? [];
    if (!gaps.length)
      return app.tell(props.card.empty ? "No device lanes, so no gaps" : "The device lanes have no gaps");
    const at = gaps.findIndex((g) => g.id === app.gap()?.id);
    selectGap(gaps[(at + 1) % gaps.length]!);
  };

  // --- pointer -----------------------------------------------------------------------------------------------------
  let pointerX: number | null = null;
  const localX = (e: { clientX: number }): number => e.clientX - slices.getBoundingClientRect().left;
  const lanesDown = (e: PointerEvent): void => {
    if (e.button !== 0) return;
    const x0 = localX(e);
    const startRange = app.visible();
    const nsPerPx = (startRange.end - startRange.start) / size().width;
    const t0 = timeline!.timeAt(x0);
    const y0 = scroller.scrollTop + e.clientY;
    let moved = false;
    const measures = e.shiftKey;
    overlay.setPointerCapture(e.pointerId);
    const move = (m: PointerEvent): void => {
      const dx = localX(m) - x0;
      if (!moved && Math.abs(dx) + Math.abs(scroller.scrollTop + m.clientY - y0) < 4) return;
      moved = true;
      setHover(null);
      if (measures) {
        const t1 = t0 + dx * nsPerPx;
        setMeasuring(true);
        setMeasure({ start: Math.min(t0, t1), end: Math.max(t0, t1) });
      } else {
        app.setRange({ start: startRange.start - dx * nsPerPx, end: startRange.end - dx * nsPerPx });
        scroller.scrollTop = y0 - m.clientY;
      }
    };
    const up = (u: PointerEvent): void => {
      overlay.removeEventListener("pointermove", move);
      overlay.removeEventListener("pointerup", up);
      overlay.removeEventListener("pointercancel", up);
      setMeasuring(false);
      if (moved || u.type === "pointercancel") return;
      setMeasure(null);
      const item = timeline!.itemAt(localX(u), u.clientY - slices.getBoundingClientRect().top);
      if (!item) return app.select(null);
      if (!item.gap) return app.select(item.id);
      selectGap(gapById().get(item.id) ?? gapFromItem(item));
    };
    overlay.addEventListener("pointermove", move);
    overlay.addEventListener("pointerup", up);
    overlay.addEventListener("pointercancel", up);
  };
  const lanesMove = (e: PointerEvent): void => {
    pointerX = localX(e);
    if (e.buttons) return;
    const item = timeline!.itemAt(pointerX, e.clientY - slices.getBoundingClientRect().top);
    setHover(item ? { item, x: e.clientX, y: e.clientY } : null);
  };
  const leave = (): void => {
    pointerX = null;
    setHover(null);
  };
  const wheel = (e: WheelEvent): void => {
    const v = app.visible();
    const nsPerPx = (v.end - v.start) / size().width;
    const scale = e.deltaMode === WheelEvent.DOM_DELTA_LINE ? 16 : 1;
    if (e.ctrlKey || e.metaKey) {
      e.preventDefault();
      const factor = Math.exp(Math.max(-60, Math.min(60, e.deltaY * scale)) * 0.005);
      app.setRange(zoomRange(v, factor, timeline!.timeAt(Math.max(0, localX(e)))));
    } else if (e.shiftKey || Math.abs(e.deltaX) > Math.abs(e.deltaY)) {
      e.preventDefault();
      const by = (e.shiftKey && !e.deltaX ? e.deltaY : e.deltaX) * scale * nsPerPx;
      app.setRange({ start: v.start + by, end: v.end + by });
    }
  };
  /** Drag on the ruler (the visible range) or the overview (the scope) zooms to what was dragged over. */
  const brushDown = (e: PointerEvent, canvas: HTMLCanvasElement, of: () => Range, pannable: boolean): void => {
    if (e.button !== 0) return;
    const base = of();
    const box = canvas.getBoundingClientRect();
    const at = (m: PointerEvent): number =>
      base.start + ((m.clientX - box.left) / Math.max(1, box.width)) * (base.end - base.start);
    const t0 = at(e);
    const v = app.visible();
    const narrow = v.end - v.start < (base.end - base.start) * 0.97;
    const pan = pannable && narrow && t0 > v.start && t0 < v.end;
    let moved = false;
    canvas.setPointerCapture(e.pointerId);
    const move = (m: PointerEvent): void => {
      if (!moved && Math.abs(m.clientX - e.clientX) < 3) return;
      moved = true;
      if (pan) app.setRange({ start: v.start + at(m) - t0, end: v.end + at(m) - t0 });
      else setBrush({ start: t0, end: at(m) });
    };
    const up = (u: PointerEvent): void => {
      canvas.removeEventListener("pointermove", move);
      canvas.removeEventListener("pointerup", up);
      canvas.removeEventListener("pointercancel", up);
      const b = brush();
      setBrush(null);
      if (u.type === "pointercancel") return;
      if (b && moved) app.setRange({ start: Math.min(b.start, b.end), end: Math.max(b.start, b.end) }, "step");
      else if (!moved && pannable && narrow) app.setRange(recentre(v, { start: t0, end: t0 }), "step");
    };
    canvas.addEventListener("pointermove", move);
    canvas.addEventListener("pointerup", up);
    canvas.addEventListener("pointercancel", up);
  };

  /** Marks the start of what is selected, without a selection the moment under the pointer; a second time takes it away. */
  const mark = (): void => {
    const event = app.selected() ? app.ok(app.details) : undefined;
    const v = app.visible();
    const pointed = pointerX === null ? (v.start + v.end) / 2 : timeline!.timeAt(pointerX);
    const at = Math.round(event?.start ?? app.gap()?.start ?? pointed);
    const near = (2 * (v.end - v.start)) / Math.max(1, size().width);
    const others = app.marks().filter((m) => Math.abs(m.at - at) > near);
    if (others.length < app.marks().length) return app.setMarks(others);
    const name = event?.op ?? event?.name ?? (app.gap() ? "gap" : `mark ${others.length + 1}`);
    app.setMarks([...others, { at, name }]);
  };

  setTimelineCommands({
    mark,
    zoom: (factor) => {
      const v = app.visible();
      const middle = pointerX === null ? (v.start + v.end) / 2 : timeline!.timeAt(pointerX);
      app.setRange(zoomRange(v, factor, middle));
    },
    pan: (share) => {
      const v = app.visible();
      const by = (v.end - v.start) * share;
      app.setRange({ start: v.start + by, end: v.end + by });
    },
    nextGap,
    firstSlice: () => timeline?.visibleItems().find((i) => !i.gap)?.id ?? null,
    clearMeasure: () => {
      if (!measure()) return false;
      setMeasure(null);
      return true;
    },
  });

  return (
    <section
      class="timeline"
      aria-label="Timeline"
      data-testid="timeline"
      data-ready={drawn() && app.seeded() && pending() === 0 ? "true" : "false"}
    >
      <div class="timeline-head">
        <div class="label-column head-label">
          <ScopePicker card={props.card} />
        </div>
        <div class="time-column">
          <canvas
            ref={overview}
            class="overview"
            role="img"
            aria-label="Overview: share of time that host and device are busy"
            onPointerDown={(e) => brushDown(e, overview, app.homeView, true)}
            onDblClick={() => app.showHome()}
          />
          <div class="ruler-row">
            <canvas
              ref={ruler}
              class="ruler"
              role="img"
              aria-label="Time ruler; drag to zoom"
              onPointerDown={(e) => brushDown(e, ruler, app.visible, false)}
            />
            <Marks width={size().width} />
          </div>
        </div>
      </div>
      <Show when={problem()}>
        <div class="error-line" role="alert">
          {problem()}
          <button
            type="button"
            onClick={() => {
              if (overviewData.state === "errored") void refetchOverview();
              timeline?.retry();
            }}
          >
            Try again
          </button>
        </div>
      </Show>
      <div
        class="lanes"
        ref={scroller}
        onScroll={() => timeline?.scroll(scroller.scrollTop)}
        on:wheel={{ handleEvent: wheel, passive: false }}
      >
        <div class="canvas-stack" style={{ left: `${LABEL_WIDTH}px` }}>
          <canvas ref={under} style={sizeOf(size())} />
          <canvas ref={slices} style={sizeOf(size())} data-testid="slices" />
          <canvas
            ref={overlay}
            class="overlay"
            style={sizeOf(size())}
            role="img"
            aria-label={`Timeline of ${props.card.name}; slices can be stepped through with comma and full stop`}
            onPointerDown={lanesDown}
            onPointerMove={lanesMove}
            onPointerLeave={leave}
            onDblClick={(e) => {
              const item = timeline!.itemAt(localX(e), e.clientY - slices.getBoundingClientRect().top);
              if (item && !item.gap) app.select(item.id, { fit: cardOf(item) });
            }}
          />
          <Show when={!firstTile() && !error()}>
            <div class="loading-lanes">loading the timeline…</div>
          </Show>
        </div>
        <div class="lane-rows" style={{ height: `${layout().height}px` }}>
          <For each={layout().rows}>
            {(row) => (
              <div
                class={`lane-row ${row.kind}`}
                style={{ top: `${row.top}px`, height: `${row.height}px` }}
                data-testid={row.kind === "track" ? "lane-label" : "group-label"}
                title={row.kind === "track" ? `${row.label}\n${row.track!.subtitle}` : undefined}
              >
                <Show
                  when={row.track}
                  fallback={
                    <button
                      type="button"
                      class="group-name mono"
                      title={row.label}
                      aria-expanded={!folded().has(row.key)}
                      onClick={() => {
                        const next = new Set(folded());
                        if (!next.delete(row.key)) next.add(row.key);
                        setFolded(next);
                      }}
                    >
                      <span class="chevron" classList={{ closed: folded().has(row.key) }} aria-hidden="true">
                        ▾
                      </span>
                      {row.label.replace("/", " / ")}
                    </button>
                  }
                >
                  {(track) => (
                    <div class="lane-name">
                      <div class="mono short">
                        {track().short}
                        <Show when={row.deep}>
                          <button
                            type="button"
                            class="chevron"
                            classList={{ closed: !row.open }}
                            aria-expanded={row.open}
                            title={`${track().lanes} levels`}
                            aria-label={`Show the ${track().lanes} levels of ${track().short} at full height`}
                            onClick={() => {
                              const next = new Set(opened());
                              if (!next.delete(track().id)) next.add(track().id);
                              setOpened(next);
                            }}
                          >
                            ▾
                          </button>
                        </Show>
                      </div>
                      <div class="subtitle">{track().subtitle}</div>
                    </div>
                  )}
                </Show>
              </div>
            )}
          </For>
        </div>
        <Show when={props.card.empty}>{(text) => <div class="empty-note">{text()}</div>}</Show>
      </div>
      <div class="visually-hidden" aria-live="polite" data-testid="measure">
        {measured()}
      </div>
      <Show when={hover()}>
        {(h) => <Tooltip at={h()} gaps={gapById()} card={props.card} avoid={timeline?.labels() ?? []} />}
      </Show>
    </section>
  );
}

const sizeOf = (s: { width: number; height: number }) => ({ width: `${s.width}px`, height: `${s.height}px` });

function cardOf(item: Item): EventCard {
  return {
    id: item.id,
    name: item.name,
    op: item.op,
    track_id: item.track,
    lane: item.lane,
    lane_label: "",
    role: "",
    start: item.start,
    end: item.start + item.duration,
    duration_ns: item.duration,
  };
}

function gapFromItem(item: Item): Gap {
  return {
    id: item.id,
    track_id: item.track,
    start: item.start,
    end: item.start + item.duration,
    duration_ns: item.duration,
    cause: "unknown",
    text: `${duration(item.duration)} idle`,
    next_event: null,
  };
}

/** Which step the page is about. */
function ScopePicker(props: { card: ProfileCard }) {
  const chosen = () => {
    const name = app.scope();
    if (name) return name;
    const d = props.card.default_range;
    return (
      props.card.steps.find((s) => s.start === d.start && s.end === d.end)?.name ??
      (d.end - d.start >= props.card.span_ns ? "all" : "default")
    );
  };
  return (
    <Show when={props.card.steps.length > 0} fallback={<span class="subtitle">{props.card.default_range.text}</span>}>
      <select
        class="scope"
        aria-label="Step shown"
        value={chosen()}
        onChange={(e) => app.setScope(e.currentTarget.value === "default" ? null : e.currentTarget.value)}
      >
        <Show when={chosen() === "default"}>
          <option value="default">{props.card.default_range.text}</option>
        </Show>
        <For each={props.card.steps}>
          {(s, i) => (
            <option value={s.name}>
              {s.name} ({i() + 1} of {props.card.steps.length}){s.complete ? "" : ", incomplete"}
            </option>
          )}
        </For>
        <option value="all">whole recording</option>
      </select>
    </Show>
  );
}

interface Rect {
  x: number;
  y: number;
  width: number;
  height: number;
}

/** Beside the pointer: inside the window and, where there is such a place, off the labels of the chain's arrows. */
function Tooltip(props: {
  at: { item: Item; x: number; y: number };
  gaps: Map<string, Gap>;
  card: ProfileCard;
  avoid: Rect[];
}) {
  let box!: HTMLDivElement;
  const [place, setPlace] = createSignal({ left: "0px", top: "0px" });
  createEffect(() => {
    const { width, height } = box.getBoundingClientRect();
    const [right, left] = [props.at.x + 14, props.at.x - 14 - width];
    const [below, above] = [props.at.y + 16, props.at.y - 12 - height];
    const places = [
      { x: right, y: below },
      { x: right, y: above },
      { x: left, y: below },
      { x: left, y: above },
    ].filter((p) => p.x >= 4 && p.y >= 4 && p.x + width <= innerWidth - 4 && p.y + height <= innerHeight - 4);
    const free = (p: { x: number; y: number }): boolean =>
      props.avoid.every((a) => a.x > p.x + width || a.x + a.width < p.x || a.y > p.y + height || a.y + a.height < p.y);
    const chosen = places.find(free) ?? places[0] ?? { x: 4, y: below };
    setPlace({ left: `${chosen.x}px`, top: `${chosen.y}px` });
  });
  const item = () => props.at.item;
  const track = () => trackOf(props.card, item().track);
  const about = () => (item().estimated ? "≈ " : "");
  return (
    <div ref={box} class="tooltip" style={place()} role="tooltip" data-testid="tooltip">
      <Show
        when={!item().gap}
        fallback={
          <>
            <div class="tooltip-name">
              {pretty(props.gaps.get(item().id)?.text ?? `${duration(item().duration)} idle`)}
            </div>
            <div class="subtitle">gap on {track()?.short}</div>
          </>
        }
      >
        <div class="tooltip-name mono">
          <span class="dot" style={{ background: app.cssColor(item().op) }} />
          {item().name}
        </div>
        <Show when={item().op && item().op !== item().name}>
          <div class="mono dim">{item().op}</div>
        </Show>
        <Show
          when={item().count === 1}
          fallback={
            <div>
              {item().count.toLocaleString("en-US")} slices here, busy {percent(item().busy)}; the longest is named.
              Zoom in to see each.
            </div>
          }
        >
          <div class="tooltip-line">
            <b>
              {about()}
              {duration(item().duration)}
            </b>{" "}
            <span class="dim">{nanoseconds(item().duration)}</span>
          </div>
          <Show when={item().launch > 0}>
            <div class="dim">
              launch {duration(item().launch)} {app.readyCard()?.made_by.launch_status} · engines + DMA {about()}
              {duration(item().duration - item().launch)} {item().estimated ? "estimated" : "simulated"}
            </div>
          </Show>
        </Show>
        <div class="dim">starts at {nanoseconds(item().start - app.home().start)}</div>
        <div class="dim">
          {track()?.short} · {track()?.subtitle}
        </div>
      </Show>
    </div>
  );
}

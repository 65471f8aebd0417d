/** Roofline: what memory and compute allow, and how far below each executable stays. Log scales. */

import { createMemo, For, Show } from "solid-js";
import { si } from "../format";
import { app } from "../state";
import type { Roofline } from "../types";

const W = 620;
const H = 190;
const LEFT = 50;
const BOTTOM = 162;
const TOP = 16;
const RIGHT = 606;
const NOTE_W = 290;

export function RooflineChart(props: { data: Roofline }) {
  const scale = createMemo(() => {
    const r = props.data;
    const ridge = r.peak_flops / r.hbm_bytes_per_second;
    const points = r.points.filter((p) => p.flops_per_byte > 0 && p.flops_per_second > 0);
    const x0 = Math.min(ridge / 1e3, ...points.map((p) => p.flops_per_byte / 3));
    const x1 = Math.max(ridge * 10, ...points.map((p) => p.flops_per_byte * 3));
    const y1 = r.peak_flops * 2;
    const y0 = Math.min(r.peak_flops / 1e4, ...points.map((p) => p.flops_per_second / 3));
    const at = (v: number, a: number, b: number) => (Math.log(v) - Math.log(a)) / (Math.log(b) - Math.log(a));
    return {
      points,
      x: (v: number) => LEFT + at(v, x0, x1) * (RIGHT - LEFT),
      y: (v: number) => BOTTOM - at(Math.max(v, y0), y0, y1) * (BOTTOM - TOP),
      ridge,
      x0,
      x1,
      slopeX: Math.max(x0, y0 / r.hbm_bytes_per_second),
    };
  });
  const roof = () => {
    const s = scale();
    const r = props.data;
    return `M${s.x(s.slopeX)} ${s.y(s.slopeX * r.hbm_bytes_per_second)} L${s.x(s.ridge)} ${s.y(r.peak_flops)} L${RIGHT} ${s.y(r.peak_flops)}`;
  };
  const middle = () => {
    const s = scale();
    const v = Math.sqrt(s.slopeX * s.ridge);
    return { x: s.x(v), y: s.y(v * props.data.hbm_bytes_per_second) };
  };
  const angle = () => {
    const s = scale();
    const dx = s.x(s.ridge) - s.x(s.slopeX);
    const dy = s.y(props.data.peak_flops) - s.y(s.slopeX * props.data.hbm_bytes_per_second);
    return (Math.atan2(dy, dx) * 180) / Math.PI;
  };
  const launchBound = () => scale().points.filter((p) => p.bound === "launch");
  /** Beside the last of the points it is about. */
  const note = () => {
    const last = launchBound().reduce<Roofline["points"][number] | null>(
      (a, b) => (a && a.flops_per_byte > b.flops_per_byte ? a : b),
      null,
    );
    const x = last ? scale().x(last.flops_per_byte) : 0;
    return (
      last && {
        x: Math.min(x + 12, RIGHT - NOTE_W),
        y: scale().y(last.flops_per_second) + (x + 12 > RIGHT - NOTE_W ? 18 : 4),
      }
    );
  };
  const hollow = (bound: string): boolean => bound === "launch" && launchBound().length < scale().points.length;
  return (
    <figure class="roofline" data-testid="roofline">
      <svg viewBox={`0 0 ${W} ${H}`} role="img" aria-label={`Roofline of ${props.data.target}`}>
        <path class="axis" d={`M${LEFT} ${TOP - 8} V${BOTTOM} H${RIGHT}`} />
        <path class="roof" d={roof()} />
        <text class="axis-text" x={LEFT - 8} y={TOP + 2} text-anchor="end">
          FLOP/s
        </text>
        <text class="axis-text" x={RIGHT} y={BOTTOM + 20} text-anchor="end">
          FLOP per byte →
        </text>
        <text
          class="roof-text"
          x={(scale().x(scale().ridge) + RIGHT) / 2}
          y={scale().y(props.data.peak_flops) - 7}
          text-anchor="middle"
        >
          {si(props.data.peak_flops)}FLOP/s
        </text>
        <text
          class="roof-text"
          text-anchor="middle"
          transform={`translate(${middle().x} ${middle().y}) rotate(${angle()}) translate(0 -8)`}
        >
          {si(props.data.hbm_bytes_per_second)}B/s
        </text>
        <For each={scale().points}>
          {(p) => (
            <circle
              cx={scale().x(p.flops_per_byte)}
              cy={scale().y(p.flops_per_second)}
              r="4.5"
              fill={hollow(p.bound) ? "none" : app.cssColor(p.name)}
              stroke={app.cssColor(p.name)}
              stroke-width="1.5"
            >
              <title>
                {`${p.profile}: ${p.name}, ${p.flops_per_byte.toPrecision(3)} FLOP per byte, ${si(p.flops_per_second)}FLOP/s, ${p.bound}-bound`}
              </title>
            </circle>
          )}
        </For>
        <Show when={note()}>
          {(at) => (
            <text class="axis-text" x={at().x} y={Math.min(at().y, BOTTOM - 5)}>
              launch-bound{launchBound().length < scale().points.length ? " (hollow)" : ""}: the roofs say nothing about{" "}
              {launchBound().length === 1 ? "this" : "these"}
            </text>
          )}
        </Show>
      </svg>
      <Show when={!scale().points.length}>
        <figcaption class="small dim">No execution counts its floating-point operations and bytes.</figcaption>
      </Show>
    </figure>
  );
}

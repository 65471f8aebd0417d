/** Each executable on the roofline: what bounds it, how much of that it reaches, what its engines do meanwhile. */

import { createResource, For, Show } from "solid-js";
import { api } from "../api";
import { css, slotColor } from "../colors";
import { duration, percent, pretty, si } from "../format";
import { Failure } from "../panels/panel";
import { app } from "../state";
import type { ProfileCard, Roofline, RooflineRow } from "../types";
import { along, plot, ticks } from "./plot";

const WIDTH = 560;
const HEIGHT = 260;
const LEFT = 58;
const BOTTOM = 34;
const ROWS_SHOWN = 24;
const HUES: Record<string, number> = { memory: 0, compute: 2 };

const fill = (bound: string): string =>
  bound in HUES ? css(slotColor(HUES[bound] as number, app.theme())) : "var(--dim)";

const power10 = (power: number): string =>
  power < 0 ? (10 ** power).toFixed(-power) : si(10 ** power).replace(/\.0+ /, " ");

export function RooflineCard(props: { card: ProfileCard }) {
  const [found] = createResource(
    () => ({ p: props.card.id, range: app.home() }),
    ({ p, range }) => api.roofline(p, range),
  );
  return (
    <section class="card wide" aria-label="Roofline" data-testid="analysis-roofline">
      <h3>
        Executables against the hardware's peaks
        <Show when={app.ok(found)?.range}>{(range) => <span class="dim normal">{range().text}</span>}</Show>
      </h3>
      <Failure of={found}>
        <Show when={app.ok(found)}>
          {(f) => (
            <Show when={!f().reason} fallback={<p class="dim reason-text">{pretty(f().reason)}</p>}>
              <div class="executables">
                <Chart found={f()} />
                <Rows found={f()} />
              </div>
              <p class="dim small">
                <For each={["memory", "compute"]}>
                  {(roof) => (
                    <>
                      <span class="swatch" style={{ background: fill(roof) }} /> {roof} roof is nearer.{" "}
                    </>
                  )}
                </For>
                Roofs of {f().roofs.unit} ({f().roofs.source}): {si(f().roofs.flops_per_second)}FLOP/s{" "}
                {f().roofs.flops_dtype}, {si(f().roofs.bytes_per_second)}B/s. Launch-bound: the launch cost is more than{" "}
                {percent(f().launch_bound_above)} of device time. Reached: time at the nearer roof over engine and DMA
                time. FLOP/s are over engine and DMA time, launch aside.
              </p>
            </Show>
          )}
        </Show>
      </Failure>
    </section>
  );
}

function Chart(props: { found: Roofline }) {
  const drawn = () => plot(props.found, WIDTH, HEIGHT);
  return (
    <Show when={drawn()}>
      {(p) => (
        <svg
          viewBox={`${-LEFT} -8 ${WIDTH + LEFT + 8} ${HEIGHT + BOTTOM + 8}`}
          role="img"
          aria-label={`Roofline with ${p().points.length} executables`}
        >
          <For each={ticks(p().y)}>
            {(power) => {
              const y = HEIGHT - along(p().y, 10 ** power);
              return (
                <>
                  <line x1={0} x2={WIDTH} y1={y} y2={y} stroke="var(--line)" />
                  <text x={-8} y={y + 4} text-anchor="end">
                    {power10(power)}
                  </text>
                </>
              );
            }}
          </For>
          <For each={ticks(p().x)}>
            {(power) => {
              const x = along(p().x, 10 ** power);
              return (
                <>
                  <line x1={x} x2={x} y1={0} y2={HEIGHT} stroke="var(--line)" />
                  <text x={x} y={HEIGHT + 14} text-anchor="middle">
                    {power10(power)}
                  </text>
                </>
              );
            }}
          </For>
          <text x={WIDTH / 2} y={HEIGHT + 30} text-anchor="middle">
            FLOP per HBM byte
          </text>
          <text x={4} y={10}>
            FLOP/s
          </text>
          <polyline
            points={p()
              .roof.map((corner) => corner.join(","))
              .join(" ")}
            fill="none"
            stroke="var(--text)"
            stroke-width="1.5"
          />
          <For each={p().points}>
            {(point) => (
              <circle
                cx={point.x}
                cy={point.y}
                r={5}
                fill={fill(point.row.roof)}
                stroke="var(--lane)"
                data-testid="roof-point"
              >
                <title>{`${point.row.name}\n${pretty(point.row.text)}`}</title>
              </circle>
            )}
          </For>
        </svg>
      )}
    </Show>
  );
}

function Rows(props: { found: Roofline }) {
  const busiest = (row: RooflineRow): string => {
    const [first] = Object.entries(row.engines).sort((a, b) => b[1] - a[1]);
    return first ? `${first[0]} ${percent(first[1])}` : "–";
  };
  return (
    <table class="analysis-table">
      <thead>
        <tr>
          <th scope="col">executable</th>
          <th scope="col" class="number">
            device time
          </th>
          <th scope="col" class="number" title="launch cost over device time">
            launch
          </th>
          <th scope="col" class="number" title="the engine, or DMA, that is active longest">
            busiest
          </th>
          <th scope="col" class="number" title="time at the nearer roof over engine and DMA time">
            reached
          </th>
          <th scope="col" class="after">
            bound by
          </th>
        </tr>
      </thead>
      <tbody>
        <For each={props.found.rows.slice(0, ROWS_SHOWN)}>
          {(row) => (
            <tr title={pretty(row.text)}>
              <td class="name">{row.name}</td>
              <td class="number mono">
                {row.estimated_ns ? "≈ " : ""}
                {duration(row.device_time_ns)}
              </td>
              <td class="number mono">{percent(row.launch_share)}</td>
              <td class="number mono">{busiest(row)}</td>
              <td class="number mono">{row.roof ? `${percent(row.reached)} ${row.roof}` : "–"}</td>
              <td class="after">{row.bound || "–"}</td>
            </tr>
          )}
        </For>
      </tbody>
    </table>
  );
}

/** Time by operator: the compact table under the timeline and the full one of the Operators view. */

import { createMemo, createResource, createSignal, For, Show } from "solid-js";
import { api } from "../api";
import { baseName } from "../colors";
import { duration, markdownTable, percent, pretty } from "../format";
import { app } from "../state";
import type { OperatorRow, ProfileCard } from "../types";
import { Failure, Panel } from "./panel";

type Column = {
  key: keyof OperatorRow;
  title: string;
  full?: boolean;
  /** left out where no operator has device time */
  device?: boolean;
  text: (row: OperatorRow) => string;
  strong?: boolean;
};

/** Why a time is marked as a bound. */
export const BOUND =
  "A bound: this program reads or writes where its data says (embedding, gather, scatter). It is timed as if all indices were distinct; with indices that repeat or lie together a device may be faster.";

const approx = (row: OperatorRow): { estimated: boolean } => ({ estimated: row.estimated_ns > 0 });

function columnsFor(device: string): Column[] {
  return [
    { key: "calls", title: "Calls", text: (r) => r.calls.toLocaleString("en-US") },
    {
      key: "executions",
      title: "Executions",
      full: true,
      device: true,
      text: (r) => r.executions.toLocaleString("en-US"),
    },
    { key: "self_cpu_ns", title: "Self CPU", text: (r) => duration(r.self_cpu_ns) },
    { key: "launch_ns", title: "Launch", full: true, device: true, text: (r) => duration(r.launch_ns) },
    {
      key: "program_ns",
      title: "Engines + DMA",
      full: true,
      device: true,
      text: (r) => `${r.bound_ns > 0 ? "≤ " : ""}${duration(r.program_ns, approx(r))}`,
    },
    {
      key: "estimated_ns",
      title: "Estimated",
      full: true,
      device: true,
      text: (r) => (r.estimated_ns > 0 ? duration(r.estimated_ns, approx(r)) : "–"),
    },
    {
      key: "device_time_ns",
      title: `Self ${device}`,
      device: true,
      text: (r) => duration(r.device_time_ns, approx(r)),
      strong: true,
    },
  ];
}

/** What the device column is called: NEURON for Trainium, the plain word otherwise. */
const deviceWord = (card: ProfileCard): string =>
  /trn|inf|neuron/i.test(`${card.made_by.target ?? ""} ${card.made_by.label} ${card.format}`) ? "NEURON" : "device";

export function OperatorsPanel(props: { card: ProfileCard; full?: boolean }) {
  const [operators] = createResource(
    () => ({ p: props.card.id, range: app.home() }),
    ({ p, range }) => api.operators(p, range),
  );
  const [sorted, setSort] = createSignal<{ key: keyof OperatorRow; down: boolean } | null>(null);
  const data = () => app.ok(operators);
  /** Without device time the table is about the host's. */
  const onDevice = () => (data()?.total.device_time_ns ?? 1) > 0;
  const time = (): "device_time_ns" | "self_cpu_ns" => (onDevice() ? "device_time_ns" : "self_cpu_ns");
  const word = () => (onDevice() ? deviceWord(props.card) : "CPU");
  const sort = () => sorted() ?? { key: time(), down: true };
  const share = (row: OperatorRow): number | null =>
    onDevice() ? row.share : row.self_cpu_ns / Math.max(1, data()?.total.self_cpu_ns ?? 1);
  const columns = createMemo(() =>
    columnsFor(deviceWord(props.card)).filter((c) => (props.full || !c.full) && (onDevice() || !c.device)),
  );
  const rows = createMemo(() => {
    const { key, down } = sort();
    const value = (r: OperatorRow) => (key === "share" ? share(r) : r[key]) ?? 0;
    return [...(data()?.rows ?? [])].sort((a, b) => {
      const order = value(a) < value(b) ? -1 : value(a) > value(b) ? 1 : 0;
      return down ? -order : order;
    });
  });
  /** Only Neuron profiles know what engines did; which executions, the server says. */
  const inside = () => deviceWord(props.card) === "NEURON" && props.card.outer === null;
  const largest = () => Math.max(1e-9, ...rows().map((r) => share(r) ?? 0));
  const selectedOp = () => {
    const d = app.selected() ? app.ok(app.details) : undefined;
    return d?.op ? baseName(d.op) : null;
  };
  const markdown = (): string =>
    markdownTable(
      ["Name", ...columns().map((c) => c.title), "Share"],
      [...rows(), data()!.total].map((r) => [r.name, ...columns().map((c) => c.text(r)), percent(share(r))]),
    );
  const head = (c: { key: keyof OperatorRow; title: string }) => (
    <th
      scope="col"
      classList={{ number: c.key !== "name" }}
      aria-sort={sort().key === c.key ? (sort().down ? "descending" : "ascending") : undefined}
    >
      <button
        type="button"
        onClick={() => setSort({ key: c.key, down: sort().key === c.key ? !sort().down : c.key !== "name" })}
        title={`Sort by ${c.title}`}
      >
        {c.title}
        <Show when={sort().key === c.key && props.full}>
          <span aria-hidden="true">{sort().down ? " ↓" : " ↑"}</span>
        </Show>
      </button>
    </th>
  );
  return (
    <Panel
      title="Operators"
      about={`by self ${onDevice() ? "device" : "CPU"} time${app.scope() === "all" ? ", whole recording" : ""}`}
      class={props.full ? "operators-panel full" : "operators-panel"}
      actions={
        <Show when={rows().length}>
          <button type="button" class="quiet" onClick={() => app.copy(markdown(), "Table")}>
            Copy table
          </button>
        </Show>
      }
    >
      <Failure of={operators}>
        <Show when={data()}>
          {(d) => (
            <>
              <Show
                when={rows().length}
                fallback={
                  <p class="hint">{d().reason ? "" : (props.card.empty ?? "No operator ran in this range.")}</p>
                }
              >
                <table class="operators">
                  <thead>
                    <tr>
                      {head({ key: "name", title: "Name" })}
                      <For each={columns()}>{(c) => head(c)}</For>
                      <td />
                      {head({ key: "share", title: "share" })}
                    </tr>
                  </thead>
                  <tbody>
                    <For each={rows()}>
                      {(row) => (
                        <tr
                          data-testid="operator-row"
                          data-name={row.name}
                          classList={{ selected: selectedOp() === baseName(row.name), clickable: row.events !== null }}
                          tabindex={row.events === null ? undefined : 0}
                          onKeyDown={(e) => {
                            if (e.key !== "Enter" && e.key !== " ") return;
                            e.preventDefault();
                            pick(row);
                          }}
                          onClick={() => pick(row)}
                        >
                          <td class="mono name" title={row.name}>
                            <span class="dot" style={{ background: app.cssColor(row.name) }} aria-hidden="true" />
                            {row.name}
                            <Show when={row.bound_ns > 0}>
                              {" "}
                              <span class="chip bound" data-testid="bound" title={BOUND}>
                                {props.full ? "bound" : "≤"}
                              </span>
                            </Show>
                            <Show when={props.full && row.events !== null && row.executions > 0 && inside()}>
                              <button
                                type="button"
                                class="quiet engines-link"
                                data-testid="row-engines"
                                title="What each engine and DMA queue did in its first execution"
                                onClick={(e) => {
                                  e.stopPropagation();
                                  void app.openEngines(row.events!);
                                }}
                              >
                                engines
                              </button>
                            </Show>
                          </td>
                          <For each={columns()}>
                            {(c) => (
                              <td
                                class="mono number"
                                classList={{ strong: c.strong, dim: !c.strong && c.key !== "calls" }}
                                title={titleOf(row, c)}
                              >
                                {c.text(row)}
                              </td>
                            )}
                          </For>
                          <td class="bar-cell" aria-hidden="true">
                            <div class="bar">
                              <div
                                style={{
                                  width: `${((share(row) ?? 0) / largest()) * 100}%`,
                                  background: app.cssColor(row.name),
                                }}
                              />
                            </div>
                          </td>
                          <td class="mono number dim">{percent(share(row))}</td>
                        </tr>
                      )}
                    </For>
                  </tbody>
                  <tfoot>
                    <tr data-testid="operator-total">
                      <th scope="row">Self {word()} total</th>
                      <For each={columns()}>
                        {(c) => (
                          <td
                            class="mono number"
                            classList={{ strong: c.strong, dim: !c.strong && c.key !== "calls" }}
                            title={titleOf(d().total, c)}
                          >
                            {c.text(d().total)}
                          </td>
                        )}
                      </For>
                      <td />
                      <td />
                    </tr>
                  </tfoot>
                </table>
              </Show>
              <Show when={d().reason}>
                {(reason) => (
                  <div class="card reason" data-testid="reason">
                    <h3>{pretty(reason().title)}</h3>
                    <For each={reason().lines}>{(line) => <p>{pretty(line)}</p>}</For>
                  </div>
                )}
              </Show>
            </>
          )}
        </Show>
      </Failure>
      <p class="panel-foot right">{provenance(props.card)}</p>
    </Panel>
  );

  function pick(row: OperatorRow): void {
    if (row.events === null) return;
    if (app.view() === "timeline") app.select(row.events);
    else app.open(props.card.id, { view: "timeline", event: row.events });
  }
}

function titleOf(row: OperatorRow, column: Column): string | undefined {
  const value = row[column.key];
  return typeof value === "number" && column.key.endsWith("_ns") ? `${value.toLocaleString("en-US")} ns` : undefined;
}

function provenance(card: ProfileCard): string {
  return card.made_by.emulated
    ? `host rows: measured on this machine · device rows: ${card.made_by.label.replace(" · ", " ")}`
    : card.made_by.label;
}

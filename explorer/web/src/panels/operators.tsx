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
  text: (row: OperatorRow) => string;
  strong?: boolean;
};

const approx = (row: OperatorRow): { estimated: boolean } => ({ estimated: row.estimated_ns > 0 });

function columnsFor(device: string): Column[] {
  return [
    { key: "calls", title: "Calls", text: (r) => r.calls.toLocaleString("en-US") },
    { key: "executions", title: "Executions", full: true, text: (r) => r.executions.toLocaleString("en-US") },
    { key: "self_cpu_ns", title: "Self CPU", text: (r) => duration(r.self_cpu_ns) },
    { key: "launch_ns", title: "Launch", full: true, text: (r) => duration(r.launch_ns) },
    { key: "program_ns", title: "Engines + DMA", full: true, text: (r) => duration(r.program_ns, approx(r)) },
    {
      key: "estimated_ns",
      title: "Estimated",
      full: true,
      text: (r) => (r.estimated_ns > 0 ? duration(r.estimated_ns, approx(r)) : "–"),
    },
    {
      key: "device_time_ns",
      title: `Self ${device}`,
      text: (r) => duration(r.device_time_ns, { significant: 4, ...approx(r) }),
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
  const [sort, setSort] = createSignal<{ key: keyof OperatorRow; down: boolean }>({
    key: "device_time_ns",
    down: true,
  });
  const columns = createMemo(() => columnsFor(deviceWord(props.card)).filter((c) => props.full || !c.full));
  const data = () => app.ok(operators);
  const rows = createMemo(() => {
    const { key, down } = sort();
    const value = (r: OperatorRow) => r[key] ?? 0;
    return [...(data()?.rows ?? [])].sort((a, b) => {
      const order = value(a) < value(b) ? -1 : value(a) > value(b) ? 1 : 0;
      return down ? -order : order;
    });
  });
  const largest = () => Math.max(1e-9, ...rows().map((r) => r.share));
  const selectedOp = () => {
    const d = app.selected() ? app.ok(app.details) : undefined;
    return d?.op ? baseName(d.op) : null;
  };
  const markdown = (): string =>
    markdownTable(
      ["Name", ...columns().map((c) => c.title), "Share"],
      [...rows(), data()!.total].map((r) => [r.name, ...columns().map((c) => c.text(r)), percent(r.share)]),
    );
  const head = (c: { key: keyof OperatorRow; title: string }) => (
    <th
      scope="col"
      classList={{ number: c.key !== "name" }}
      aria-sort={sort().key === c.key ? (sort().down ? "descending" : "ascending") : undefined}
    >
      <button
        type="button"
        onClick={() => setSort((s) => ({ key: c.key, down: s.key === c.key ? !s.down : c.key !== "name" }))}
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
      about={`by self device time${app.scope() === "all" ? ", whole recording" : ""}`}
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
                          onKeyDown={(e) => e.key === "Enter" && pick(row)}
                          onClick={() => pick(row)}
                        >
                          <td class="mono name" title={row.name}>
                            <span class="dot" style={{ background: app.cssColor(row.name) }} aria-hidden="true" />
                            {row.name}
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
                                  width: `${(row.share / largest()) * 100}%`,
                                  background: app.cssColor(row.name),
                                }}
                              />
                            </div>
                          </td>
                          <td class="mono number dim">{percent(row.share)}</td>
                        </tr>
                      )}
                    </For>
                  </tbody>
                  <tfoot>
                    <tr data-testid="operator-total">
                      <th scope="row">Self {deviceWord(props.card)} total</th>
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

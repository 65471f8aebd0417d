/** The dependency chain as cards: cause at the top, the wait between them. */

import { createEffect, For, Show } from "solid-js";
import { duration, pretty } from "../format";
import { app } from "../state";
import type { ChainEvent } from "../types";
import { Failure, Panel } from "./panel";

export function ChainPanel() {
  const chain = () => {
    const c = app.selected() ? app.ok(app.chain) : undefined;
    return c?.events.some((e) => e.id === app.selected()) ? c : undefined;
  };
  const about = () => {
    const c = chain();
    return c ? (c.events[0]?.op ?? c.events[0]?.name ?? "") : "";
  };
  return (
    <Panel title="Dependency chain" about={about()} class="chain-panel">
      <Show when={app.selected()} fallback={<Hint />}>
        <Failure of={app.chain}>
          <Show when={chain()}>
            {(c) => (
              <>
                <ol class="chain" aria-label="Events of the chain, cause first">
                  <For each={c().events}>{(event, i) => <Card event={event} before={c().events[i() - 1]} />}</For>
                </ol>
                <Show when={c().events.length === 1}>
                  <p class="hint">Nothing else is linked to this slice.</p>
                </Show>
                <p class="panel-foot">J / K step along the chain · F zoom to it</p>
              </>
            )}
          </Show>
        </Failure>
      </Show>
    </Panel>
  );
}

function Hint() {
  return (
    <div class="hint">
      <p>Click a slice to see what caused it and what it caused.</p>
      <p>
        <kbd>.</kbd> steps through a lane, <kbd>N</kbd> goes to the largest gap, <kbd>?</kbd> shows all keys.
      </p>
    </div>
  );
}

/** The other core's part of one execution: it has no wait of its own. */
const sameExecution = (a: ChainEvent | undefined, b: ChainEvent): boolean =>
  a !== undefined && a.role === b.role && a.name === b.name && a.start === b.start && a.track_id !== b.track_id;

function Card(props: { event: ChainEvent; before: ChainEvent | undefined }) {
  let card!: HTMLButtonElement;
  const selected = () => app.selected() === props.event.id;
  const estimated = () => {
    const d = app.ok(app.details);
    return d?.id === props.event.id && (d.execution?.estimated_ns ?? 0) > 0;
  };
  const queued = () => /^queued/.test(props.event.wait_reason ?? "");
  const waitReason = () => (queued() ? "" : pretty(props.event.wait_reason ?? ""));
  const note = () => {
    if (queued()) return pretty(props.event.wait_reason!);
    const d = app.ok(app.details);
    const x = d?.id === props.event.id ? d.execution : null;
    if (!x || x.launch_ns === null || x.program_ns === null || x.launch_ns <= 0) return props.event.role;
    const how = x.provenance.program ?? "simulated";
    return `launch ${duration(x.launch_ns)} ${x.provenance.launch ?? ""} · engines + DMA ${how === "estimated" ? "≈ " : ""}${duration(x.program_ns)} ${how}`;
  };
  createEffect(() => {
    note(); // makes the card higher
    if (selected()) card.scrollIntoView({ block: "nearest" });
  });
  return (
    <li>
      <Show when={props.before && props.event.wait_ns !== null}>
        <div class="chain-wait">
          <Show when={!sameExecution(props.before, props.event)} fallback="same execution, other core">
            <span aria-hidden="true">↓</span> {duration(props.event.wait_ns)} {waitReason()}
          </Show>
        </div>
      </Show>
      <button
        ref={card}
        type="button"
        class="card chain-card"
        classList={{ selected: selected() }}
        style={{ "--hue": app.cssColor(props.event.op) }}
        data-testid="chain-card"
        data-event={props.event.id}
        aria-current={selected() ? "true" : undefined}
        onClick={() => app.select(props.event.id, { recentre: props.event })}
        onDblClick={() => app.select(props.event.id, { fit: props.event })}
      >
        <span class="card-line">
          <span class="mono strong card-name">{props.event.name}</span>
          <span class="mono strong number">
            {estimated() ? "≈ " : ""}
            {duration(props.event.duration_ns)}
          </span>
        </span>
        <span class="card-line small dim">
          <span class="mono">{props.event.lane_label}</span>
          <span>{note()}</span>
        </span>
      </button>
    </li>
  );
}

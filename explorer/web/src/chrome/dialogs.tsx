/** The help overlay and the report on what was read. */

import { createResource, For, type JSX, onCleanup, onMount, Show } from "solid-js";
import { api } from "../api";
import { markdownTable } from "../format";
import { healthOpen, helpOpen, KEYS, setHealthOpen, setHelpOpen } from "../keys";
import { Failure } from "../panels/panel";
import { app } from "../state";
import type { IngestReport } from "../types";

/** Byte offset of the first event of a kind. */
const place = (offset: number | string | null): string =>
  offset === null || Number(offset) < 0 ? "–" : Number(offset).toLocaleString("en-US");

/** A modal box with a title; Escape, the cross and a click beside it close it. */
export function Dialog(props: { title: string; close: () => void; testid: string; children: JSX.Element }) {
  let box!: HTMLDialogElement;
  const before = document.activeElement as HTMLElement | null;
  onMount(() => box.showModal());
  onCleanup(() => before?.focus?.());
  return (
    // biome-ignore lint/a11y/useKeyWithClickEvents: a click beside the dialog closes it, as Escape does
    <dialog
      ref={box}
      class="dialog"
      aria-label={props.title}
      data-testid={props.testid}
      onClose={props.close}
      onClick={(e) => e.target === box && props.close()}
    >
      <div class="dialog-body">
        <header class="panel-head">
          <h2>{props.title}</h2>
          <span class="grow" />
          <button type="button" class="icon" aria-label="Close" onClick={props.close}>
            ✕
          </button>
        </header>
        {props.children}
      </div>
    </dialog>
  );
}

export function Dialogs() {
  return (
    <>
      <Show when={helpOpen()}>
        <Dialog title="Keys" testid="help" close={() => setHelpOpen(false)}>
          <div class="keys">
            <For each={[...new Set(KEYS.map((k) => k.group))]}>
              {(group) => (
                <section>
                  <h3>{group}</h3>
                  <dl>
                    <For each={KEYS.filter((k) => k.group === group)}>
                      {(k) => (
                        <div>
                          <dt>
                            <kbd>{k.keys}</kbd>
                          </dt>
                          <dd>{k.text}</dd>
                        </div>
                      )}
                    </For>
                  </dl>
                </section>
              )}
            </For>
            <section>
              <h3>What is drawn</h3>
              <p>
                A slice's colour is its operator's, the same in every view. Hatched is launch cost, solid is engines and
                DMA (simulated). A dashed outline and ≈ mean estimated. Slices narrower than a pixel share one, as high
                as the time they cover. Light hatching between executions is idle time; point at it for the cause.
              </p>
            </section>
          </div>
        </Dialog>
      </Show>
      <Show when={healthOpen()}>
        <Dialog title="What was read" testid="health" close={() => setHealthOpen(false)}>
          <Health />
        </Dialog>
      </Show>
    </>
  );
}

const COUNTS = ["in_file", "stored", "repaired", "skipped", "dropped"] as const;

function Health() {
  const [report] = createResource(app.profileId, api.ingest);
  const name = (key: (typeof COUNTS)[number]): string =>
    key === "in_file" ? "events in the file" : key === "dropped" ? "dropped while recording" : key;
  const markdown = (r: IngestReport): string =>
    [
      markdownTable(
        ["events", "count"],
        COUNTS.map((key) => [name(key), count(r[key])]),
      ),
      ...(r.rows.length
        ? [
            markdownTable(
              ["kind", "count", "first at", "action", "reason"],
              r.rows.map((row) => [row.kind, String(row.count), place(row.offset), row.action, row.message]),
            ),
          ]
        : []),
    ].join("\n\n");
  const count = (n: number | null): string =>
    n === null ? "unknown (the format does not record it)" : n.toLocaleString("en-US");
  return (
    <Failure of={report}>
      <Show when={app.ok(report)}>
        {(r) => (
          <>
            <dl class="fields">
              <For each={COUNTS}>
                {(key) => (
                  <div class="field">
                    <dt>{name(key)}</dt>
                    <dd class="mono">{count(r()[key])}</dd>
                  </div>
                )}
              </For>
            </dl>
            <Show when={r().rows.length} fallback={<p class="hint">Nothing had to be repaired or left out.</p>}>
              <table class="ingest">
                <thead>
                  <tr>
                    <th scope="col">kind</th>
                    <th scope="col">count</th>
                    <th scope="col">first at</th>
                    <th scope="col">action</th>
                    <th scope="col">reason</th>
                  </tr>
                </thead>
                <tbody>
                  <For each={r().rows}>
                    {(row) => (
                      <tr>
                        <td class="mono">{row.kind}</td>
                        <td class="mono number">{row.count.toLocaleString("en-US")}</td>
                        <td class="mono number">{place(row.offset)}</td>
                        <td>{row.action}</td>
                        <td>{row.message}</td>
                      </tr>
                    )}
                  </For>
                </tbody>
              </table>
            </Show>
            <p class="dialog-foot">
              <button type="button" class="quiet" onClick={() => app.copy(markdown(r()), "Report")}>
                Copy as Markdown
              </button>
            </p>
          </>
        )}
      </Show>
    </Failure>
  );
}

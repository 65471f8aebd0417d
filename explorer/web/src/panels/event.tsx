/** Everything known about the selected slice or gap; about the profile when nothing is selected. */

import { For, type JSX, Show } from "solid-js";
import { bytes, duration, nanoseconds, plural, pretty } from "../format";
import { app, trackOf } from "../state";
import type { EventDetails, Gap } from "../types";
import { markdownRow } from "./markdown";
import { BOUND } from "./operators";
import { Failure, Panel } from "./panel";
import { SourceCode } from "./source";

export function EventPanel() {
  const event = () => {
    const d = app.selected() ? app.ok(app.details) : undefined;
    return d?.id === app.selected() ? d : undefined;
  };
  return (
    <Panel
      title={app.gap() ? "Gap" : app.selected() ? "Event" : "Profile"}
      about={event()?.name ?? (app.gap() ? trackOf(app.readyCard(), app.gap()!.track_id)?.short : undefined)}
      class="event-panel"
      testid="event-panel"
      actions={
        <Show when={event()}>
          {(e) => (
            <button
              type="button"
              class="quiet"
              title="Copy as a Markdown row (C)"
              onClick={() => app.copy(markdownRow(e(), app.link()), "Selection")}
            >
              Copy
            </button>
          )}
        </Show>
      }
    >
      <Show when={!app.gap()} fallback={<GapDetails gap={app.gap()!} />}>
        <Show when={app.selected()} fallback={<ProfileFacts />}>
          <Failure of={app.details}>
            <Show when={event()}>{(e) => <Details event={e()} />}</Show>
          </Failure>
        </Show>
      </Show>
    </Panel>
  );
}

function Row(props: { name: string; title?: string | undefined; children: JSX.Element }) {
  return (
    <div class="field" title={props.title}>
      <dt>{props.name}</dt>
      <dd class="mono">{props.children}</dd>
    </div>
  );
}

/** A duration as people read it and, in grey after it, every nanosecond. */
function Time(props: { ns: number; mark?: string; how?: string | undefined }) {
  return (
    <>
      {props.mark ?? ""}
      {duration(props.ns)}
      {props.how ? ` ${props.how}` : ""}
      <Show when={Math.abs(props.ns) >= 1000}>
        {" "}
        <span class="dim normal-weight">{nanoseconds(props.ns)}</span>
      </Show>
    </>
  );
}

/** A row whose value one wants elsewhere: a click copies it in full. */
function CopyRow(props: { name: string; value: string; shown?: string }) {
  return (
    <Row name={props.name}>
      <button
        type="button"
        class="link mono"
        title={`${props.value}\nclick to copy`}
        aria-label={`Copy ${props.name} ${props.value}`}
        onClick={() => app.copy(props.value, props.name)}
      >
        {props.shown ?? props.value}
      </button>
    </Row>
  );
}

function Details(props: { event: EventDetails }) {
  const e = () => props.event;
  const x = () => props.event.execution;
  const estimated = () => (x()?.estimated_ns ?? 0) > 0;
  const bound = () => x()?.provenance.program === "bound";
  /** of the execution, else of the row itself (an instruction, a Python frame) */
  const place = () =>
    [x()?.source, e().attributes?.nki_source, e().attributes?.source].find(
      (text): text is string => typeof text === "string" && text !== "",
    ) ?? (/\.py\(\d+\)/.test(e().name) ? e().name : null);
  const approx = () => (estimated() ? "≈ " : "");
  const others = () =>
    Object.entries(e().attributes ?? {}).filter(
      ([, value]) => value !== null && value !== "" && typeof value !== "object",
    );
  return (
    <dl class="fields">
      <Row name="start">
        <Time ns={e().start - app.home().start} />
      </Row>
      <Row name="duration">
        <Time ns={e().duration_ns} mark={approx()} />
      </Row>
      <Show when={x()}>
        {(execution) => (
          <>
            <Show when={execution().neff}>
              <CopyRow name="NEFF" value={execution().neff!} />
            </Show>
            <Show when={execution().instructions !== null}>
              <Row name="program">
                {execution().instructions} instr
                {execution().dma_transfers === null ? "" : ` · ${execution().dma_transfers} DMA`}
              </Row>
            </Show>
            <Show when={execution().bytes_read !== null || execution().bytes_written !== null}>
              <Row name="bytes">
                {bytes(execution().bytes_read)} in · {bytes(execution().bytes_written)} out
              </Row>
            </Show>
            <Show when={execution().launch_ns !== null && execution().launch_ns! > 0}>
              <Row name="launch">
                <Time ns={execution().launch_ns!} how={execution().provenance.launch} />
              </Row>
              <Show when={execution().program_ns !== null}>
                <Row name="engines + DMA" title={bound() ? BOUND : undefined}>
                  <Time
                    ns={execution().program_ns!}
                    mark={bound() ? "≤ " : approx()}
                    how={bound() ? undefined : execution().provenance.program}
                  />
                  <Show when={bound()}>
                    {" "}
                    <span class="chip bound" data-testid="bound">
                      bound
                    </span>
                  </Show>
                </Row>
              </Show>
            </Show>
            <Show when={execution().bytes_at_hbm_peak_ns !== null}>
              <Row name="bytes at HBM peak">
                <Time ns={execution().bytes_at_hbm_peak_ns!} />
              </Row>
            </Show>
            <Show when={execution().queue_ns !== null}>
              <Row name="queued">
                <Time ns={execution().queue_ns!} />
              </Row>
            </Show>
            <Show when={execution().shapes}>
              <Row name="shapes" title={execution().shapes!}>
                {execution().shapes} {execution().dtypes ?? ""}
              </Row>
            </Show>
            <Row name="module">{execution().module || "–"}</Row>
            <Show when={execution().source} fallback={<Row name="source">–</Row>}>
              <CopyRow name="source" value={execution().source!} shown={shortSource(execution().source!)} />
            </Show>
            <Show when={execution().device_profile}>
              {(inside) => (
                <Row name="engines">
                  <button
                    type="button"
                    class="link"
                    data-testid="open-engines"
                    title="What each engine and DMA queue did in this execution (E)"
                    onClick={() => app.open(inside(), { view: "timeline" })}
                  >
                    show engines and DMA
                  </button>
                </Row>
              )}
            </Show>
            <Show when={execution().step !== null && execution().step !== "" && execution().step !== -1}>
              <Row name="step">{execution().step}</Row>
            </Show>
          </>
        )}
      </Show>
      <Show when={place()}>{(at) => <SourceCode place={at()} />}</Show>
      <Row name="made by">{e().made_by}</Row>
      <Show when={(x()?.physical_cores ?? 0) > 0}>
        <Row name="counted">
          once{(x()!.physical_cores ?? 1) > 1 ? ` (${plural(x()!.physical_cores!, "physical core")})` : ""}
        </Row>
      </Show>
      <Show when={e().gap_before}>
        <Row name="gap before">{pretty(e().gap_before!.text)}</Row>
      </Show>
      <Row name="lane">{e().lane_label}</Row>
      <Row name="id">{e().id}</Row>
      <For each={others()}>
        {([key, value]) => (
          <Row name={key} title={String(value)}>
            {String(value)}
          </Row>
        )}
      </For>
    </dl>
  );
}

/** The last part of a path, as "naive.py:17". */
const shortSource = (source: string): string => source.split("/").at(-1) ?? source;

function GapDetails(props: { gap: Gap }) {
  return (
    <dl class="fields">
      <p class="statement">{pretty(props.gap.text)}</p>
      <Row name="start">
        <Time ns={props.gap.start - app.home().start} />
      </Row>
      <Row name="idle">
        <Time ns={props.gap.duration_ns} />
      </Row>
      <Row name="cause">{props.gap.cause.replaceAll("_", " ")}</Row>
      <Show when={props.gap.next_event}>
        <div class="field">
          <dt>ended by</dt>
          <dd>
            <button type="button" class="link mono" onClick={() => app.select(props.gap.next_event)}>
              next slice
            </button>
          </dd>
        </div>
      </Show>
    </dl>
  );
}

function ProfileFacts() {
  const card = app.readyCard;
  return (
    <Show when={card()}>
      {(c) => (
        <>
          <dl class="fields">
            <Row name="format">{c().format}</Row>
            <Row name="made by">
              {c().made_by.label}
              {c().made_by.model_version ? ` · model ${c().made_by.model_version}` : ""}
            </Row>
            <Row name="span">
              <Time ns={c().span_ns} />
            </Row>
            <Row name="health" title={c().health.text}>
              {c().health.text}
            </Row>
          </dl>
          <ul class="facts">
            <For each={c().facts}>{(fact) => <li>{pretty(fact)}</li>}</For>
          </ul>
        </>
      )}
    </Show>
  );
}

/** Neuronscope's page: start here. state.ts is what is shown, timeline/ draws it, panels/ and compare/ explain it. */

import { createSignal, Match, onCleanup, onMount, Show, Switch } from "solid-js";
import { render } from "solid-js/web";
import { AnalysisView } from "./analysis/view";
import { lost, pending } from "./api";
import { Dialogs } from "./chrome/dialogs";
import { TopBar } from "./chrome/top-bar";
import { CompareView } from "./compare/view";
import { onKey } from "./keys";
import { ChainPanel } from "./panels/chain";
import { EventPanel } from "./panels/event";
import { OperatorsPanel } from "./panels/operators";
import { Failure } from "./panels/panel";
import { app } from "./state";
import "./style.css";
import { TimelineView } from "./timeline/view";
import type { ProfileCard } from "./types";
import { UploadForm, UploadTarget } from "./upload/panel";
import { rules } from "./upload/uploads";

function Page() {
  onMount(() => {
    addEventListener("keydown", onKey);
    onCleanup(() => removeEventListener("keydown", onKey));
  });
  const spoken = (): string => {
    const d = app.selected() ? app.ok(app.details) : undefined;
    return d ? `${d.name} on ${d.lane_label} selected` : (app.gap()?.text ?? "");
  };
  return (
    <>
      <div
        class="progress"
        classList={{ busy: pending() > 0 }}
        role="progressbar"
        aria-label="Loading"
        aria-hidden={pending() === 0}
      />
      <TopBar />
      <Show when={lost()}>
        {(why) => (
          <div class="error-line" role="alert">
            {why().message}
            <button type="button" onClick={() => location.reload()}>
              Reload
            </button>
          </div>
        )}
      </Show>
      <main>
        <Failure of={app.profiles}>
          <Show
            when={(app.ok(app.profiles)?.length ?? 0) > 0}
            fallback={
              <div class="empty-note">
                <p>
                  No profile is open. Start the explorer with one: <code>neuronscope view PATH</code>.
                </p>
                <Show when={rules().enabled}>
                  <UploadForm />
                </Show>
              </div>
            }
          >
            <Show when={app.view() !== "compare"} fallback={<CompareView />}>
              <Failure of={app.card}>
                <Show when={app.readyCard()} keyed>
                  {(card) => (
                    <Switch>
                      <Match when={app.view() === "timeline"}>
                        <TimelinePage card={card} />
                      </Match>
                      <Match when={app.view() === "analysis"}>
                        <AnalysisView card={card} />
                      </Match>
                      <Match when={app.view() === "operators"}>
                        <OperatorsPanel card={card} full />
                      </Match>
                    </Switch>
                  )}
                </Show>
              </Failure>
            </Show>
          </Show>
        </Failure>
      </main>
      <div class="notice" role="status" classList={{ shown: app.notice() !== "" }}>
        {app.notice()}
      </div>
      <div class="visually-hidden" aria-live="polite">
        {spoken()}
      </div>
      <Dialogs />
      <UploadTarget />
    </>
  );
}

const SPLIT_KEY = "neuronscope.split";

function TimelinePage(props: { card: ProfileCard }) {
  let page!: HTMLDivElement;
  const stored = (): number => {
    try {
      return Number(localStorage.getItem(SPLIT_KEY)) || 0.49;
    } catch {
      return 0.49;
    }
  };
  const [share, setShareSignal] = createSignal(stored());
  const setShare = (value: number): void => {
    setShareSignal(Math.min(0.85, Math.max(0.15, value)));
    try {
      localStorage.setItem(SPLIT_KEY, String(share()));
    } catch {
      // lasts as long as the page
    }
  };
  const drag = (e: PointerEvent): void => {
    const bar = e.currentTarget as HTMLElement;
    bar.setPointerCapture(e.pointerId);
    const box = page.getBoundingClientRect();
    const move = (m: PointerEvent): void => setShare((m.clientY - box.top) / box.height);
    bar.addEventListener("pointermove", move);
    bar.addEventListener("lostpointercapture", () => bar.removeEventListener("pointermove", move), { once: true });
  };
  return (
    <div class="timeline-page" ref={page} style={{ "grid-template-rows": `${share()}fr 7px ${1 - share()}fr` }}>
      <TimelineView card={props.card} />
      {/* biome-ignore lint/a11y/useSemanticElements: a splitter that moves is a separator with a value, hr has none */}
      <div
        class="splitter"
        role="separator"
        aria-orientation="horizontal"
        aria-label="Height of the timeline"
        aria-valuenow={Math.round(share() * 100)}
        tabindex={0}
        onPointerDown={drag}
        onKeyDown={(e) => {
          if (e.key !== "ArrowUp" && e.key !== "ArrowDown") return;
          e.preventDefault();
          e.stopPropagation();
          setShare(share() + (e.key === "ArrowDown" ? 0.03 : -0.03));
        }}
      />
      <div class="panels">
        <ChainPanel />
        <EventPanel />
        <OperatorsPanel card={props.card} />
      </div>
    </div>
  );
}

render(() => <Page />, document.getElementById("root")!);

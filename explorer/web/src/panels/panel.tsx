/** Frame of a panel, and what it shows while its data is missing. */

import { createEffect, createSignal, type JSX, Match, onCleanup, Show, Switch } from "solid-js";
import { ApiError, isLoss } from "../api";

export function Panel(props: {
  title: string;
  about?: string;
  class?: string;
  actions?: JSX.Element;
  children: JSX.Element;
  testid?: string;
}) {
  return (
    <section class={`panel ${props.class ?? ""}`} aria-label={props.title} data-testid={props.testid}>
      <header class="panel-head">
        <h2>{props.title}</h2>
        <Show when={props.about}>
          <span class="mono dim about" title={props.about}>
            {props.about}
          </span>
        </Show>
        <span class="grow" />
        {props.actions}
      </header>
      <div class="panel-body">{props.children}</div>
    </section>
  );
}

/** As `Failure`, for answers that may take long: how long it has been working, and a way to stop. */
export function Working(props: {
  of: { state: string; error: unknown };
  stop: () => void;
  again: () => void;
  children: JSX.Element;
}) {
  const pending = () => props.of.state === "pending" || props.of.state === "refreshing";
  const [seconds, setSeconds] = createSignal(0);
  createEffect(() => {
    if (!pending()) return;
    setSeconds(0);
    const timer = setInterval(() => setSeconds((s) => s + 1), 1000);
    onCleanup(() => clearInterval(timer));
  });
  const stopped = () =>
    props.of.state === "errored" && props.of.error instanceof DOMException && props.of.error.name === "AbortError";
  return (
    <Switch fallback={<Failure of={props.of}>{props.children}</Failure>}>
      <Match when={stopped()}>
        <p class="hint">
          stopped{" "}
          <button type="button" class="link" onClick={props.again}>
            work it out again
          </button>
        </p>
      </Match>
      <Match when={pending()}>
        <p class="hint" role="status">
          {seconds() ? `working, ${seconds()} s ` : "loading…"}
          <Show when={seconds()}>
            <button type="button" class="link" data-testid="stop" onClick={props.stop}>
              Stop
            </button>
          </Show>
        </p>
      </Match>
    </Switch>
  );
}

/** Shows a resource's error as one line, its children otherwise; "loading" before there is anything. A loss is told on top. */
export function Failure(props: { of: { state: string; error: unknown }; children: JSX.Element }) {
  return (
    <Switch fallback={props.children}>
      <Match when={props.of.state === "errored" && isLoss(props.of.error)}>
        <p class="hint">not loaded</p>
      </Match>
      <Match when={props.of.state === "errored"}>
        <p class="error-line" role="alert">
          {props.of.error instanceof ApiError ? props.of.error.message : String(props.of.error)}
        </p>
      </Match>
      <Match when={props.of.state === "pending"}>
        <p class="hint">loading…</p>
      </Match>
    </Switch>
  );
}

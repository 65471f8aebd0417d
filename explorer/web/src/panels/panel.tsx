/** Frame of a panel, and what it shows while its data is missing. */

import { type JSX, Match, Show, Switch } from "solid-js";
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

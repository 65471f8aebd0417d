/** Search by name; results are slices one can go to. */

import { createEffect, createSignal, For, on, onCleanup, Show } from "solid-js";
import { api } from "../api";
import { duration } from "../format";
import { app } from "../state";
import type { EventCard } from "../types";

const LIMIT = 30;

export function Search() {
  let input!: HTMLInputElement;
  const [text, setText] = createSignal("");
  const [found, setFound] = createSignal<{ total: number; events: EventCard[] } | null>(null);
  const [problem, setProblem] = createSignal("");
  const [open, setOpen] = createSignal(false);
  const [at, setAt] = createSignal(0);
  let abort: AbortController | undefined;
  let timer: ReturnType<typeof setTimeout> | undefined;
  createEffect(
    on([text, app.profileId], ([q, p]) => {
      clearTimeout(timer);
      abort?.abort();
      setProblem("");
      if (!q.trim() || !p) {
        setFound(null);
        return;
      }
      timer = setTimeout(() => {
        abort = new AbortController();
        api.search(p, q.trim(), LIMIT, abort.signal).then(
          (result) => {
            setFound(result);
            setAt(0);
          },
          (error: unknown) => {
            if (error instanceof DOMException && error.name === "AbortError") return;
            setFound(null);
            setProblem(error instanceof Error ? error.message : String(error));
          },
        );
      }, 120);
    }),
  );
  onCleanup(() => clearTimeout(timer));
  const go = (event: EventCard | undefined): void => {
    if (!event) return;
    if (app.view() !== "timeline") app.setView("timeline");
    app.select(event.id, { recentre: event });
    setOpen(false);
    input.blur();
  };
  const key = (e: KeyboardEvent): void => {
    const n = found()?.events.length ?? 0;
    if (e.key === "Escape") {
      e.stopPropagation();
      if (open() && text()) setText("");
      setOpen(false);
      input.blur();
    } else if (e.key === "ArrowDown" && n) setAt((at() + 1) % n);
    else if (e.key === "ArrowUp" && n) setAt((at() - 1 + n) % n);
    else if (e.key === "Enter") go(found()?.events[at()]);
    else return;
    e.preventDefault();
  };
  return (
    <div class="search" onFocusOut={(e) => !e.currentTarget.contains(e.relatedTarget as Node | null) && setOpen(false)}>
      <input
        id="search"
        ref={input}
        type="text"
        placeholder="Search name, /regex/"
        aria-label="Search slices"
        role="combobox"
        aria-expanded={open() && found() !== null}
        aria-controls="search-results"
        aria-activedescendant={open() && found()?.events.length ? `search-result-${at()}` : undefined}
        autocomplete="off"
        spellcheck={false}
        value={text()}
        onInput={(e) => {
          setText(e.currentTarget.value);
          setOpen(true);
        }}
        onFocus={() => setOpen(true)}
        onKeyDown={key}
      />
      <span class="search-key mono">/</span>
      <Show when={open() && (found() || problem())}>
        <div class="search-results" id="search-results" role="listbox" aria-label="Search results" tabindex={-1}>
          <Show when={!problem()} fallback={<p class="error-line">{problem()}</p>}>
            <p class="hint small">
              {found()!.total === 0
                ? "No slice has this in its name."
                : `${found()!.total.toLocaleString("en-US")} found${found()!.total > LIMIT ? `, first ${LIMIT} shown` : ""}`}
            </p>
            <For each={found()!.events}>
              {(event, i) => (
                <button
                  type="button"
                  role="option"
                  id={`search-result-${i()}`}
                  tabindex={-1}
                  aria-selected={at() === i()}
                  class="search-result"
                  classList={{ active: at() === i() }}
                  data-testid="search-result"
                  onMouseEnter={() => setAt(i())}
                  onClick={() => go(event)}
                >
                  <span class="dot" style={{ background: app.cssColor(event.op) }} aria-hidden="true" />
                  <span class="mono card-name">{event.name}</span>
                  <span class="small dim">{event.lane_label}</span>
                  <span class="mono small number">{duration(event.duration_ns)}</span>
                </button>
              )}
            </For>
          </Show>
        </div>
      </Show>
    </div>
  );
}

/** Product, views, profile, badges, search, help, theme, link. */

import { For, Show } from "solid-js";
import { pretty } from "../format";
import { setHealthOpen, setHelpOpen } from "../keys";
import { app } from "../state";
import type { MadeBy, ProfileSummary } from "../types";
import { rules, setUploadsOpen } from "../upload/uploads";
import type { View } from "../url";
import { Search } from "./search";

export function TopBar() {
  const list = () => app.ok(app.profiles) ?? [];
  const views = (): { view: View; label: string }[] => [
    { view: "timeline", label: "Timeline" },
    { view: "analysis", label: "Analysis" },
    { view: "operators", label: "Operators" },
    ...(list().length > 1 ? [{ view: "compare" as const, label: "Compare" }] : []),
  ];
  const card = app.readyCard;
  return (
    <header class="top-bar">
      <span class="product">Neuronscope</span>
      <nav aria-label="Views">
        <For each={views()}>
          {(v) => (
            <button
              type="button"
              class="view-tab"
              aria-current={app.view() === v.view ? "page" : undefined}
              onClick={() => app.setView(v.view)}
            >
              {v.label}
            </button>
          )}
        </For>
      </nav>
      <span class="grow" />
      <div class="badges">
        <Show
          when={list().length > 1 && app.view() !== "compare"}
          fallback={
            <Show when={card() && app.view() !== "compare"}>
              <span class="chip name" title={card()!.path}>
                {card()!.name}
              </span>
            </Show>
          }
        >
          <select
            class="chip name"
            aria-label="Profile"
            value={card()?.outer?.profile ?? app.profileId() ?? ""}
            title={card()?.path}
            onChange={(e) => app.open(e.currentTarget.value)}
          >
            <For each={list()}>{(p) => <option value={p.id}>{p.name}</option>}</For>
          </select>
        </Show>
        <Show when={app.view() !== "compare" && card()?.outer}>
          <button
            type="button"
            class="chip outer"
            data-testid="back-out"
            title="Back to the execution on the whole timeline (E)"
            onClick={() => app.openOuter()}
          >
            ← back
          </button>
          <Show when={list().length > 1}>
            <span class="chip inside" title={card()!.name}>
              {card()!.name.split(" · ").at(-1)}
            </span>
          </Show>
        </Show>
        <Show when={app.view() === "compare" && list().length > 1}>
          <span class="chip name">
            {list().length} profiles · base {list().find((p) => p.id === app.base())?.name ?? list()[0]?.name}
          </span>
        </Show>
        <Show when={app.view() !== "compare"} fallback={<MadeByAll of={list()} />}>
          <Show when={card()}>
            {(c) => (
              <>
                <MadeByChip of={c().made_by} />
                <button
                  type="button"
                  hidden={c().outer !== null}
                  class="chip health"
                  classList={{ amber: !c().health.clean }}
                  data-testid="health-chip"
                  title={`${c().health.text}. ${c().health.clean ? "Everything in the file is shown." : "Not everything in the file is shown: click for reasons."}`}
                  onClick={() => setHealthOpen(true)}
                >
                  {c().health.text.replace(/\s*\(.*\)$/, "")}
                </button>
              </>
            )}
          </Show>
        </Show>
      </div>
      <span class="grow" />
      <Search />
      <Show when={rules().enabled}>
        <button
          type="button"
          class="icon link-button"
          title="Open a trace or a folder from this machine; or drop it on the page"
          data-testid="open-upload"
          onClick={() => setUploadsOpen(true)}
        >
          Open…
        </button>
      </Show>
      <button
        type="button"
        class="icon"
        aria-label="Keys and help"
        title="Keys and help (?)"
        onClick={() => setHelpOpen(true)}
      >
        ?
      </button>
      <button
        type="button"
        class="icon"
        aria-label={`Switch to the ${app.theme() === "dark" ? "light" : "dark"} theme`}
        title="Light or dark"
        onClick={app.toggleTheme}
      >
        ◐
      </button>
      <button
        type="button"
        class="icon link-button"
        title="Copy the link to this view"
        onClick={() => app.copy(app.link(), "Link")}
      >
        Link
      </button>
    </header>
  );
}

function MadeByChip(props: { of: MadeBy }) {
  return (
    <span
      class="chip made-by"
      classList={{ emulated: props.of.emulated }}
      data-testid="made-by"
      title={pretty(props.of.notes.join("\n"))}
    >
      {props.of.label}
    </span>
  );
}

/** What made the compared profiles, and what they lost while recording. */
function MadeByAll(props: { of: ProfileSummary[] }) {
  const kinds = () => new Map(props.of.map((p) => [p.made_by.label, p.made_by]));
  const dropped = () => {
    const counts = props.of.map((p) => p.health.dropped);
    return counts.includes(null) ? "dropped: unknown" : `${counts.reduce<number>((a, b) => a + (b ?? 0), 0)} dropped`;
  };
  return (
    <>
      <Show
        when={kinds().size === 1}
        fallback={
          <span class="chip amber" data-testid="made-by" title={[...kinds().keys()].join("\n")}>
            {kinds().size} kinds of device
          </span>
        }
      >
        <MadeByChip of={[...kinds().values()][0]!} />
      </Show>
      <span class="chip">{dropped()}</span>
    </>
  );
}

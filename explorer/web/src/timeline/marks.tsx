/** Flags on the ruler at the marked moments; a flag opens to be renamed or taken away. */

import { createSignal, For, Show } from "solid-js";
import { nanoseconds } from "../format";
import { app } from "../state";
import type { Mark } from "../url";

export function Marks(props: { width: number }) {
  const [open, setOpen] = createSignal<Mark | null>(null);
  const x = (mark: Mark): number => {
    const v = app.visible();
    return ((mark.at - v.start) / (v.end - v.start)) * props.width;
  };
  const shown = () => app.marks().filter((mark) => x(mark) >= 0 && x(mark) < props.width);
  const rename = (mark: Mark, name: string): void => {
    setOpen(null);
    if (name !== mark.name) app.setMarks(app.marks().map((m) => (m === mark ? { at: m.at, name } : m)));
  };
  const time = (mark: Mark): string => nanoseconds(mark.at - app.home().start);
  return (
    <For each={shown()}>
      {(mark) => (
        <div
          class="mark"
          classList={{ left: x(mark) > props.width - 120 }}
          style={{ left: `${x(mark)}px` }}
          data-testid="mark"
          data-at={mark.at}
          onFocusOut={(e) => {
            const input = e.currentTarget.querySelector("input");
            if (input && !e.currentTarget.contains(e.relatedTarget as Node | null)) rename(mark, input.value.trim());
          }}
        >
          <Show
            when={open() === mark}
            fallback={
              <button
                type="button"
                class="flag"
                title={`${mark.name || "mark"} at ${time(mark)}; click to rename or remove`}
                onClick={() => setOpen(mark)}
              >
                {mark.name || "mark"}
              </button>
            }
          >
            <form
              class="flag editor"
              onSubmit={(e) => {
                e.preventDefault();
                rename(mark, e.currentTarget.querySelector("input")!.value.trim());
              }}
              onKeyDown={(e) => {
                if (e.key !== "Escape") return;
                e.stopPropagation();
                setOpen(null);
              }}
            >
              <input
                ref={(input) => queueMicrotask(() => input.select())}
                aria-label={`Name of the mark at ${time(mark)}`}
                maxlength={60}
                value={mark.name}
              />
              <button
                type="button"
                onClick={() => {
                  setOpen(null);
                  app.setMarks(app.marks().filter((m) => m !== mark));
                }}
              >
                Remove
              </button>
            </form>
          </Show>
        </div>
      )}
    </For>
  );
}

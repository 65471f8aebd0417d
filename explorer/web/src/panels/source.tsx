/** The code that launched the selected work, where the server was told where it is. */

import { createResource, For, Show } from "solid-js";
import { api } from "../api";
import { app } from "../state";

export function SourceCode(props: { place: string }) {
  const [found] = createResource(
    () => props.place,
    (place) => api.source(place),
  );
  return (
    <Show when={app.ok(found)}>
      {(code) => (
        <Show when={code().lines} fallback={<p class="hint small source-reason">{code().reason}</p>}>
          {(lines) => (
            <figure class="source" data-testid="source">
              <figcaption class="mono small dim" title={code().file}>
                {code().file}:{code().line}
              </figcaption>
              <pre class="mono">
                <For each={lines()}>
                  {(text, i) => {
                    const number = () => (code().first ?? 1) + i();
                    return (
                      <div class="source-line" classList={{ here: number() === code().line }}>
                        <span class="source-number" aria-hidden="true">
                          {number()}
                        </span>
                        <code>{text || " "}</code>
                      </div>
                    );
                  }}
                </For>
              </pre>
            </figure>
          )}
        </Show>
      )}
    </Show>
  );
}

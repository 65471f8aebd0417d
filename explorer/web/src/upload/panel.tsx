/** Opening files from the page: a drop anywhere, a dialog with buttons, and how far each upload is. */

import { createSignal, For, onCleanup, onMount, Show } from "solid-js";
import { Dialog } from "../chrome/dialogs";
import { app } from "../state";
import { type Chosen, ofDrop, ofInput } from "./files";
import {
  bytesText,
  cancel,
  ended,
  forget,
  learnRules,
  rules,
  send,
  setUploadsOpen,
  uploads,
  uploadsOpen,
} from "./uploads";

/** The overlay while something is dragged over the page, and the dialog. */
export function UploadTarget() {
  const [over, setOver] = createSignal(false);
  let depth = 0;
  const holdsFiles = (e: DragEvent): boolean => rules().enabled && (e.dataTransfer?.types.includes("Files") ?? false);
  const enter = (e: DragEvent): void => {
    if (!holdsFiles(e)) return;
    depth++;
    setOver(true);
  };
  const leave = (e: DragEvent): void => {
    if (holdsFiles(e) && --depth <= 0) setOver(false);
  };
  const hold = (e: DragEvent): void => {
    if (!holdsFiles(e) || !e.dataTransfer) return;
    e.preventDefault();
    e.dataTransfer.dropEffect = "copy";
  };
  const drop = (e: DragEvent): void => {
    depth = 0;
    setOver(false);
    if (!holdsFiles(e) || !e.dataTransfer) return;
    e.preventDefault();
    ofDrop(e.dataTransfer).then(send, (error) => app.tell(`What was dropped can't be read: ${error}`));
  };
  onMount(() => {
    void learnRules();
    const listeners = { dragenter: enter, dragleave: leave, dragover: hold, drop } as const;
    for (const [name, listener] of Object.entries(listeners)) addEventListener(name, listener as EventListener);
    onCleanup(() => {
      for (const [name, listener] of Object.entries(listeners)) removeEventListener(name, listener as EventListener);
    });
  });
  return (
    <>
      <Show when={over()}>
        <div class="drop-overlay" data-testid="drop-overlay">
          <p>Drop a trace or a folder to open it</p>
        </div>
      </Show>
      <Show when={uploadsOpen()}>
        <Dialog title="Open a profile" testid="uploads" close={() => setUploadsOpen(false)}>
          <UploadForm />
          <UploadList />
        </Dialog>
      </Show>
    </>
  );
}

/** The buttons and what can be opened. */
export function UploadForm() {
  let file!: HTMLInputElement;
  let folder!: HTMLInputElement;
  const chosen = (input: HTMLInputElement): void => {
    const found: Chosen[] = input.files ? ofInput(input.files) : [];
    void send(found);
    input.value = "";
  };
  onMount(() => folder.setAttribute("webkitdirectory", ""));
  return (
    <div class="upload-form">
      <p>
        Drop a file or a folder anywhere on this page, or choose one: a trace (<code>.json</code>, packed or not), the
        traces of all ranks, a session or Parquet folder, an archive of these, an Nsight Systems or rocprofv3 database.
        It is sent to this server, which keeps it in its library
        <Show when={rules().limit_bytes}>{(limit) => <> (at most {bytesText(limit())})</>}</Show>.
      </p>
      <p class="upload-buttons">
        <button type="button" class="primary" onClick={() => file.click()}>
          Choose files…
        </button>
        <button type="button" class="quiet" onClick={() => folder.click()}>
          Choose a folder…
        </button>
      </p>
      <input ref={file} type="file" multiple hidden data-testid="upload-file" onChange={() => chosen(file)} />
      <input ref={folder} type="file" hidden data-testid="upload-folder" onChange={() => chosen(folder)} />
    </div>
  );
}

function UploadList() {
  return (
    <ul class="uploads">
      <For each={uploads().map((one) => one.key)}>
        {(key) => {
          const one = () => uploads().find((other) => other.key === key);
          return (
            <Show when={one()}>
              {(upload) => (
                <li class="upload" data-testid="upload" data-phase={upload().phase}>
                  <span class="upload-name">{upload().name}</span>
                  <progress
                    max={1}
                    aria-label={`${upload().name}: ${upload().text}`}
                    value={upload().phase === "done" ? 1 : upload().share}
                  />
                  <button
                    type="button"
                    class="icon"
                    aria-label={ended(upload()) ? `Forget ${upload().name}` : `Cancel ${upload().name}`}
                    title={ended(upload()) ? "Take off the list" : "Cancel"}
                    onClick={() => (ended(upload()) ? forget(key) : cancel(key))}
                  >
                    ✕
                  </button>
                  <span
                    class="upload-text"
                    classList={{ failed: upload().phase === "failed" }}
                    role={upload().phase === "failed" ? "alert" : "status"}
                  >
                    {upload().text}
                  </span>
                </li>
              )}
            </Show>
          );
        }}
      </For>
    </ul>
  );
}

/** Uploads of this page: each is sent, read by the server, opened. */

import { createSignal } from "solid-js";
import { ApiError, api } from "../api";
import { app } from "../state";
import type { UploadRules } from "../types";
import { type Chosen, selectFiles } from "./files";

export interface Upload {
  key: number;
  name: string;
  phase: "sending" | "reading" | "done" | "failed" | "cancelled";
  /** 0 to 1 of the phase */
  share: number;
  text: string;
}

const [uploads, setUploads] = createSignal<Upload[]>([]);
const [rules, setRules] = createSignal<UploadRules>({ enabled: false });
export const [uploadsOpen, setUploadsOpen] = createSignal(false);
export { rules, uploads };

const aborts = new Map<number, () => void>();
let number = 0;

export const learnRules = (): Promise<void> =>
  api.uploads().then(
    (found) => void setRules(found),
    () => undefined, // an older server: no uploads
  );

const change = (key: number, to: Partial<Upload>): void =>
  void setUploads((all) => all.map((one) => (one.key === key ? { ...one, ...to } : one)));

export const ended = (one: Upload): boolean => one.phase !== "sending" && one.phase !== "reading";
export const forget = (key: number): void => void setUploads((all) => all.filter((one) => one.key !== key));
export const cancel = (key: number): void => aborts.get(key)?.();

export function bytesText(bytes: number): string {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let at = 0;
  let value = bytes;
  while (value >= 999.5 && at < units.length - 1) {
    value /= 1000;
    at++;
  }
  return `${at ? value.toPrecision(3) : value} ${units[at]}`;
}

/** Sends the files as one upload, follows the reading, opens the profile. Errors end up in the list. */
export async function send(chosen: Chosen[]): Promise<void> {
  if (!chosen.length) return;
  const { name, files, left } = selectFiles(chosen, rules().endings ?? []);
  const key = ++number;
  setUploads((all) => [{ key, name, phase: "sending", share: 0, text: "" }, ...all]);
  setUploadsOpen(true);
  let id: string | null = null;
  let stopped = false;
  let abortFile = (): void => undefined;
  aborts.set(key, () => {
    stopped = true;
    abortFile();
    if (id) void api.cancelUpload(id).catch(() => undefined);
    change(key, { phase: "cancelled", text: "cancelled" });
  });
  const check = (): void => {
    if (stopped) throw new ApiError("cancelled", -1);
  };
  try {
    if (!files.length) throw new ApiError(`none of ${chosen.length} files can be part of a profile`, 400);
    const total = files.reduce((sum, one) => sum + one.file.size, 0);
    id = (await api.beginUpload(name, total)).id;
    let before = 0;
    for (const one of files) {
      check();
      const told = (sent: number): void => {
        if (stopped) return;
        const text = `sending ${bytesText(before + sent)} of ${bytesText(total)}`;
        change(key, { share: total ? (before + sent) / total : 1, text });
      };
      await api.sendFile(id, one.path, one.file, told, (abort) => {
        abortFile = abort;
      });
      before += one.file.size;
    }
    check();
    change(key, { phase: "reading", share: 0, text: "reading" });
    await api.readUpload(id);
    const end = await api.followUpload(id, (state) => {
      if (stopped || state.state !== "reading") return;
      change(key, { share: state.fraction, text: state.stage ? `reading · ${state.stage}` : "reading" });
    });
    check();
    if (end.state !== "done" || !end.profile) throw new ApiError(end.error ?? end.state, 400);
    await app.listAgain();
    const others = left ? ` · ${left} other files left out` : "";
    change(key, { phase: "done", share: 1, text: `opened${others}` });
    if (uploads().every((one) => one.phase === "done" || one.phase === "cancelled")) {
      setUploadsOpen(false);
      app.tell(`${name} opened${others}`);
    }
    app.open(end.profile, { view: app.view() === "compare" ? "compare" : "timeline" });
  } catch (error) {
    if (stopped) return;
    if (id) void api.cancelUpload(id).catch(() => undefined);
    change(key, { phase: "failed", text: error instanceof Error ? error.message : String(error) });
  } finally {
    aborts.delete(key);
  }
}

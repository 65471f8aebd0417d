/** Typed access to the server: one function per route, errors as one line, progress of all requests in one signal. */

import { createSignal } from "solid-js";
import { decodeTile, type Tile } from "./timeline/tile";
import type {
  Analysis,
  Chain,
  Comparison,
  EventCard,
  EventDetails,
  Gap,
  IngestReport,
  Operators,
  Overview,
  ProfileCard,
  ProfileSummary,
  Range,
  Roofline,
  SourceLines,
  UploadRules,
  UploadState,
} from "./types";

/** A request failed; the message is the server's own line, or says that the server is gone. */
export class ApiError extends Error {
  constructor(
    message: string,
    readonly status: number,
  ) {
    super(message);
    this.name = "ApiError";
  }
}

const [pending, setPending] = createSignal(0);

/** Number of requests under way, for the progress bar. */
export { pending };

const [lost, setLost] = createSignal<ApiError | null>(null);

/** Why nothing more can be asked: the server is gone, or the profile was removed. Told once, on top of the page. */
export { lost };
export const forgetLoss = (): void => void setLost(null);

/** Whether an error is told on top of the page and need not be repeated where the data would be. */
export const isLoss = (error: unknown): boolean =>
  error instanceof ApiError && (error.status === 0 || error.status === 410);

function tell(error: ApiError): ApiError {
  if (isLoss(error)) setLost(error);
  return error;
}

async function request(path: string, signal?: AbortSignal, init: RequestInit = {}): Promise<Response> {
  setPending((n) => n + 1);
  try {
    const response = await fetch(path, signal ? { ...init, signal } : init).catch((error: unknown) => {
      if (error instanceof DOMException && error.name === "AbortError") throw error;
      throw tell(new ApiError("The server does not answer. Start it again with `neuronscope view` and reload.", 0));
    });
    if (lost()?.status === 0) forgetLoss();
    if (response.ok) return response;
    const body: unknown = await response.json().catch(() => null);
    const told = body && typeof body === "object" && "error" in body ? String(body.error) : null;
    throw tell(new ApiError(told ?? `${path} answered ${response.status} ${response.statusText}`, response.status));
  } finally {
    setPending((n) => n - 1);
  }
}

async function json<T>(path: string, signal?: AbortSignal): Promise<T> {
  return (await (await request(path, signal)).json()) as T;
}

async function post<T>(path: string, body: unknown): Promise<T> {
  const headers = { "Content-Type": "application/json" };
  const response = await request(path, undefined, { method: "POST", headers, body: JSON.stringify(body) });
  return (await response.json()) as T;
}

const upload = (id: string): string => `api/uploads/${encodeURIComponent(id)}`;
const of = (profile: string): string => `api/profiles/${encodeURIComponent(profile)}`;
const round = (range: Range): string => `start=${Math.floor(range.start)}&end=${Math.ceil(range.end)}`;

export const api = {
  profiles: (): Promise<ProfileSummary[]> => json("api/profiles"),
  profile: (p: string): Promise<ProfileCard> => json(of(p)),
  overview: (p: string, range: Range, width: number): Promise<Overview> =>
    json(`${of(p)}/overview?${round(range)}&width=${width}`),
  event: (p: string, id: string): Promise<EventDetails> => json(`${of(p)}/events/${encodeURIComponent(id)}`),
  chain: (p: string, id: string): Promise<Chain> => json(`${of(p)}/events/${encodeURIComponent(id)}/chain`),
  neighbour: (p: string, id: string, direction: "next" | "previous"): Promise<EventCard | null> =>
    json(`${of(p)}/neighbours?event=${encodeURIComponent(id)}&direction=${direction}`),
  gaps: (p: string, limit: number): Promise<Gap[]> => json(`${of(p)}/gaps?limit=${limit}`),
  operators: (p: string, range: Range): Promise<Operators> => json(`${of(p)}/operators?${round(range)}`),
  analysis: (p: string, name: string, range: Range | null, signal?: AbortSignal): Promise<Analysis> =>
    json(`${of(p)}/analyses/${encodeURIComponent(name)}${range ? `?${round(range)}` : ""}`, signal),
  source: (place: string): Promise<SourceLines> => json(`api/source?place=${encodeURIComponent(place)}`),
  roofline: (p: string, range: Range | null): Promise<Roofline> =>
    json(`${of(p)}/roofline${range ? `?${round(range)}` : ""}`),
  search: (
    p: string,
    q: string,
    limit: number,
    signal?: AbortSignal,
  ): Promise<{ total: number; events: EventCard[] }> =>
    json(`${of(p)}/search?q=${encodeURIComponent(q)}&limit=${limit}`, signal),
  ingest: (p: string): Promise<IngestReport> => json(`${of(p)}/ingest`),
  compare: (profiles: string[], base: string): Promise<Comparison> =>
    json(`api/compare?profiles=${profiles.map(encodeURIComponent).join(",")}&base=${encodeURIComponent(base)}`),
  uploads: (): Promise<UploadRules> => json("api/uploads"),
  beginUpload: (name: string, size: number): Promise<UploadState> => post("api/uploads", { name, size }),
  /** Sends one file; `progress` is told the bytes that are gone, `onAbort` gets what breaks it off. */
  sendFile: (
    id: string,
    path: string,
    file: Blob,
    progress: (sent: number) => void,
    onAbort: (abort: () => void) => void,
  ): Promise<void> =>
    new Promise((resolve, reject) => {
      const sending = new XMLHttpRequest();
      sending.open("PUT", `${upload(id)}/files/${path.split("/").map(encodeURIComponent).join("/")}`);
      sending.setRequestHeader("Content-Type", "application/octet-stream");
      sending.upload.onprogress = (e) => progress(e.loaded);
      sending.onload = () => {
        if (sending.status < 300) return resolve();
        let told = `${path}: the server answered ${sending.status}`;
        try {
          told = String((JSON.parse(sending.responseText) as { error: string }).error ?? told);
        } catch {
          // no answer of ours
        }
        reject(new ApiError(told, sending.status));
      };
      sending.onerror = () => reject(new ApiError(`${path}: the connection broke, or the file can't be read`, -1));
      sending.onabort = () => reject(new ApiError("cancelled", -1));
      onAbort(() => sending.abort());
      sending.send(file);
    }),
  readUpload: (id: string): Promise<UploadState> => post(`${upload(id)}/read`, {}),
  cancelUpload: async (id: string): Promise<void> => void (await request(upload(id), undefined, { method: "DELETE" })),
  /** Follows an upload to its end. */
  followUpload: (id: string, told: (state: UploadState) => void): Promise<UploadState> =>
    new Promise((resolve, reject) => {
      const events = new EventSource(`${upload(id)}/events`);
      events.onmessage = (e) => {
        const state = JSON.parse(String(e.data)) as UploadState;
        told(state);
        if (state.state !== "receiving" && state.state !== "reading") {
          events.close();
          resolve(state);
        }
      };
      events.onerror = () => {
        if (events.readyState !== EventSource.CLOSED) return; // it tries again by itself
        reject(new ApiError("The server does not answer. Start it again and reload.", 0));
      };
    }),
  async tile(p: string, range: Range, width: number, tracks: number[]): Promise<Tile> {
    const path = `${of(p)}/tiles?start=${range.start}&end=${range.end}&width=${width}&tracks=${tracks.join(",")}`;
    return decodeTile(new Uint8Array(await (await request(path)).arrayBuffer()), range);
  },
};

/** One decoded tile: the drawn items of some tracks over one range at one resolution, column by column. */

import { tableFromIPC } from "@uwdata/flechette";
import type { Range } from "../types";

export interface Tile {
  range: Range;
  length: number;
  bytes: number;
  eventId: BigInt64Array;
  track: Int32Array;
  lane: Int32Array;
  /** nanoseconds relative to the profile's origin, exact below 2^53 */
  start: Float64Array;
  duration: Float64Array;
  nameId: Int32Array;
  opId: Int32Array;
  count: Int32Array;
  busy: Float32Array;
  launchNs: Float64Array;
  estimated: Uint8Array;
  /** 0 slice, 1 gap */
  kind: Int8Array;
}

/** Decodes an Arrow IPC stream; a tile without rows may come as a stream without batches. */
export function decodeTile(ipc: Uint8Array, range: Range): Tile {
  const table = tableFromIPC(ipc, { useBigInt: true });
  const length = table.numRows;
  const column = (name: string): ArrayLike<unknown> => {
    if (length === 0) return [];
    const child = table.getChild(name);
    if (!child)
      throw new Error(`tile lacks the column ${name}: server and page are of different versions, reload the page`);
    return child.toArray() as ArrayLike<unknown>;
  };
  const numbers = <T extends { [index: number]: number }>(name: string, into: T): T => {
    const values = column(name);
    for (let i = 0; i < length; i++) into[i] = Number(values[i]);
    return into;
  };
  const ids = column("event_id");
  const eventId = new BigInt64Array(length);
  for (let i = 0; i < length; i++) eventId[i] = ids[i] as bigint;
  return {
    range,
    length,
    bytes: ipc.byteLength,
    eventId,
    track: numbers("track", new Int32Array(length)),
    lane: numbers("lane", new Int32Array(length)),
    start: numbers("start", new Float64Array(length)),
    duration: numbers("duration", new Float64Array(length)),
    nameId: numbers("name_id", new Int32Array(length)),
    opId: numbers("op_id", new Int32Array(length)),
    count: numbers("count", new Int32Array(length)),
    busy: numbers("busy", new Float32Array(length)),
    launchNs: numbers("launch_ns", new Float64Array(length)),
    estimated: numbers("estimated", new Uint8Array(length)),
    kind: numbers("kind", new Int8Array(length)),
  };
}

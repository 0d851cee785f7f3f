// The journal of a run, read as it grows: only what is new is asked for and parsed.
//
//   const journal = new Journal(source, "data/runs/0/metrics.jsonl")
//   const lines = await journal.more()      objects, in order; null: the file was cut, begin again

import { joined } from "./numbers.js";

// Bytes that are asked for at once, and those before the end that show whether it is the same file.
const MOST = 4 << 20, OVERLAP = 64;

export class Journal {
  constructor(source, path) {
    this.source = source;
    this.path = path;
    this.clear();
  }

  clear() {
    this.size = 0;
    this.last = new Uint8Array(0);
    this.torn = new Uint8Array(0);
  }

  /** The complete lines that have come since, as objects; what is no object is left out. */
  async more() {
    const from = this.size - this.last.length;
    const chunk = await this.source.after(this.path, from, MOST);
    const bytes = new Uint8Array(chunk);
    const same = bytes.length >= this.last.length && this.last.every((byte, n) => byte === bytes[n]);
    if (!same) {
      this.clear();
      return null;
    }
    const fresh = bytes.subarray(this.last.length);
    this.size += fresh.length;
    this.last = this.size ? joined(this.last, fresh).slice(-OVERLAP) : this.last;
    const data = joined(this.torn, fresh);
    const end = data.lastIndexOf(10) + 1;
    this.torn = data.slice(end);
    return parsed(new TextDecoder().decode(data.subarray(0, end)));
  }
}

function parsed(text) {
  const entries = [];
  for (const line of text.split("\n")) {
    if (line.trim() === "") continue;
    try {
      const value = JSON.parse(line);
      if (value !== null && typeof value === "object" && !Array.isArray(value)) entries.push(value);
    } catch {
      // a line that cannot be read is left out, as on a run's report
    }
  }
  return entries;
}

// Files of a folder or a server, by path from the page.

async function sent(path, how = {}) {
  try {
    return await fetch(path, how);
  } catch {
    throw new Error("The server of this page does not answer: is it still running?");
  }
}

async function got(path) {
  const answer = await sent(path);
  if (answer.status === 409) throw Object.assign(new Error(await answer.text()), { refused: true }); // what is wrong with it
  if (!answer.ok) throw new Error(`${path} is not there (${answer.status})`);
  return answer;
}

export class Files {
  async json(path) {
    return (await got(path)).json();
  }

  /** The bytes of a file; `told(read, all)` is called as they come, where their number is known. */
  async bytes(path, progress = null) {
    const answer = await got(path);
    const all = Number(answer.headers.get("Content-Length") ?? 0);
    if (!all || answer.headers.has("Content-Encoding")) return answer.arrayBuffer();
    // Read into its place as it comes: gathered first and copied then, it takes half as long again.
    const buffer = new Uint8Array(all), reader = answer.body.getReader();
    let at = 0;
    for (let part = await reader.read(); !part.done; part = await reader.read()) {
      if (at + part.value.length > all) throw new Error(`${path} is longer than its server says`);
      buffer.set(part.value, at);
      at += part.value.length;
      progress?.(at, all);
    }
    if (at < all) throw new Error(`${path} is cut off`);
    return buffer.buffer;
  }

  /** At most `most` bytes of a file after its first `from`: of one that grows, only what is new. */
  async after(path, from, most) {
    const answer = await sent(path, { headers: { Range: `bytes=${from}-${from + most - 1}` } });
    if (answer.status === 416) return new ArrayBuffer(0);
    if (!answer.ok) throw new Error(`${path} is not there (${answer.status})`);
    const bytes = await answer.arrayBuffer();
    return answer.status === 206 ? bytes : bytes.slice(from, from + most);
  }

  /** What Python says to a question; only where the page is served. */
  async ask(name, question) {
    const answer = await sent(`ask/${name}`, {
      method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(question) });
    if (!answer.ok) throw new Error(answer.status === 413 ? "The text is too long to ask about." : `Python does not answer (${answer.status}).`);
    return answer.json();
  }

  worker() {
    return new Worker(new URL("worker.js", import.meta.url), { type: "module" });
  }
}

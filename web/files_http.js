// SPDX-License-Identifier: MIT
//
// Files of a server, read by ranges, for a Worker: the engine waits for every read. A server has to
// answer 206 with Content-Range and a strong ETag; a file that changes is an error. With `cache`,
// what was read is kept in the browser's private files (OPFS) for the next time.
//
// Calls are generators that yield the ranges they need, so that the same code waits in two ways: an
// engine without threads by requests that block, a Worker that does nothing but read (reader.js) by
// streams, of which the browser holds no more than a piece.
"use strict";

(function (exports) {
  const kNoEntry = -44;  // Emscripten's ENOENT and EIO
  const kIo = -29;
  const kBlockBytes = 65536;

  // Kept blocks of one file: `data` has them in their places, `map` the ETag and a byte for each.
  class Kept {
    static kTagBytes = 256;

    static async open(url) {
      const digest = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(url));
      const name = Array.from(new Uint8Array(digest, 0, 16), (b) => b.toString(16).padStart(2, "0")).join("");
      const folder = await (await navigator.storage.getDirectory()).getDirectoryHandle("qsf", {create: true});
      const handle = async (suffix) =>
        (await folder.getFileHandle(name + suffix, {create: true})).createSyncAccessHandle();
      const data = await handle(".data");
      try {
        return new Kept(data, await handle(".map"));
      } catch (error) {
        data.close();
        throw error;
      }
    }

    constructor(data, map) {
      this.data = data;
      this.map = map;
    }

    // Takes what is there of this version of the file, or begins anew.
    begin(tag, size) {
      const text = new TextEncoder().encode(`${tag} ${size}`);
      const head = new Uint8Array(Kept.kTagBytes);
      if (text.length > head.length) throw new Error("the ETag is too long to be kept");
      head.set(text);
      const known = new Uint8Array(Kept.kTagBytes);
      this.map.read(known, {at: 0});
      this.blocks = new Uint8Array(Math.ceil(size / kBlockBytes));
      if (head.every((byte, i) => byte === known[i])) {
        this.map.read(this.blocks, {at: Kept.kTagBytes});
        return;
      }
      this.map.truncate(0);
      this.data.truncate(0);
      this.map.write(head, {at: 0});
    }

    read(to, offset) {
      return this.data.read(to, {at: offset});
    }

    // The bytes go first: a block that is marked is there.
    write(bytes, firstBlock) {
      const at = firstBlock * kBlockBytes;
      if (this.data.write(bytes, {at}) !== bytes.length) throw new Error("no room");
      this.data.flush();
      const n = Math.ceil(bytes.length / kBlockBytes);
      this.blocks.fill(1, firstBlock, firstBlock + n);
      this.map.write(this.blocks.subarray(firstBlock, firstBlock + n), {at: Kept.kTagBytes + firstBlock});
    }

    end() {
      this.map.flush();
      this.map.close();
      this.data.close();
    }
  }

  class HttpFiles {
    #error = "";
    #files = [];
    #kept = null;
    #note = "";
    #httpBytes = 0;
    #keptBytes = 0;

    constructor({cache = false} = {}) {
      this.cache = cache;
    }

    // Opens the kept blocks of a file, which takes a promise; without them it is read all the same.
    async prepare(url) {
      if (!this.cache) return;
      try {
        this.#kept = await Kept.open(url);
      } catch (error) {
        this.#note = `nothing is kept: ${error.message}`;
      }
    }

    open(url) {
      return this.#now(this.#open(url));
    }

    read(handle, to, offset) {
      return this.#now(this.#read(handle, to, offset));
    }

    // The same for a Worker that can wait for a promise.
    openLater(url) {
      return this.#later(this.#open(url));
    }

    readLater(handle, to, offset) {
      return this.#later(this.#read(handle, to, offset));
    }

    *#open(url) {
      const bytes = new Uint8Array(kBlockBytes);
      const first = yield {url, offset: 0, to: bytes, tag: null};
      const file = {url, size: first.size, tag: first.tag, at: 0, bytes: bytes.subarray(0, first.nBytes)};
      if (this.#kept !== null) this.#tryToKeep(() => this.#kept.begin(file.tag, file.size));
      return this.#files.push(file) - 1;
    }

    size(handle) {
      return this.#files[handle].size;
    }

    *#read(handle, to, offset) {
      const file = this.#files[handle];
      const n = Math.max(0, Math.min(to.length, file.size - offset));
      if (n === 0) return 0;
      if (this.#kept !== null) return yield* this.#readKept(file, to.subarray(0, n), offset);
      if (offset < file.at || offset + n > file.at + file.bytes.length) {
        if (n >= kBlockBytes) {
          yield {...file, offset, to: to.subarray(0, n)};
          return n;
        }
        // Small reads are of the file's tables, one after the other.
        const bytes = new Uint8Array(kBlockBytes);
        const got = yield {...file, offset, to: bytes};
        file.at = offset;
        file.bytes = bytes.subarray(0, got.nBytes);
      }
      to.set(file.bytes.subarray(offset - file.at, offset - file.at + n));
      return n;
    }

    close(handle) {
      this.#files[handle].bytes = new Uint8Array(0);
      return 0;
    }

    end() {
      this.#kept?.end();
      this.#kept = null;
    }

    describe() {
      return {httpBytes: this.#httpBytes, keptBytes: this.#keptBytes, cacheNote: this.#note};
    }

    // The reason of the last failure, once.
    takeError() {
      const error = this.#error;
      this.#error = "";
      return error;
    }

    // Fetches runs of blocks that are not kept, then reads all from the kept file.
    *#readKept(file, to, offset) {
      const kept = this.#kept;
      const last = Math.floor((offset + to.length - 1) / kBlockBytes);
      for (let block = Math.floor(offset / kBlockBytes); block <= last; ++block) {
        if (kept.blocks[block] === 1) continue;
        let end = block + 1;
        while (end <= last && kept.blocks[end] === 0) ++end;
        const bytes = new Uint8Array((end - block) * kBlockBytes);
        const got = yield {...file, offset: block * kBlockBytes, to: bytes};
        if (!this.#tryToKeep(() => kept.write(bytes.subarray(0, got.nBytes), block))) {
          yield {...file, offset, to};
          return to.length;
        }
        block = end - 1;
      }
      const n = kept.read(to, offset);
      this.#keptBytes += n;
      return n;
    }

    // A full or forbidden store ends keeping, not reading.
    #tryToKeep(call) {
      try {
        call();
        return true;
      } catch (error) {
        this.#note = `nothing more is kept: ${error.message}`;
        this.end();
        return false;
      }
    }

    #now(steps) {
      return this.#tried(() => {
        let step = steps.next();
        while (!step.done) step = steps.next(this.#block(step.value));
        return step.value;
      });
    }

    async #later(steps) {
      try {
        let step = steps.next();
        while (!step.done) step = steps.next(await this.#stream(step.value));
        return step.value;
      } catch (error) {
        return this.#fail(error);
      }
    }

    // Reads a range with a request that blocks. Returns {nBytes, size, tag}.
    #block({url, offset, to, tag}) {
      const request = new XMLHttpRequest();
      request.open("GET", url, false);
      request.responseType = "arraybuffer";
      for (const [name, value] of Object.entries(this.#headers(offset, to, tag))) request.setRequestHeader(name, value);
      request.send();
      const about = this.#check(url, offset, tag, request.status, (name) => request.getResponseHeader(name));
      const bytes = new Uint8Array(request.response);
      if (bytes.length !== about.nBytes) throw new Error(`${url}: the answer is cut off`);
      to.set(bytes);
      return about;
    }

    // The same without blocking.
    async #stream({url, offset, to, tag}) {
      const answer = await fetch(url, {headers: this.#headers(offset, to, tag), cache: "no-store"});
      const about = this.#check(url, offset, tag, answer.status, (name) => answer.headers.get(name));
      let n = 0;
      const reader = answer.body.getReader();
      for (;;) {
        const {value, done} = await reader.read();
        if (done) break;
        if (n + value.length > about.nBytes) throw new Error(`${url}: the answer is too long`);
        to.set(value, n);
        n += value.length;
      }
      if (n !== about.nBytes) throw new Error(`${url}: the answer is cut off`);
      return about;
    }

    #headers(offset, to, tag) {
      const headers = {"Range": `bytes=${offset}-${offset + to.length - 1}`};
      if (tag !== null) headers["If-Match"] = tag;
      return headers;
    }

    // Refuses an answer that is not the range of the same file.
    #check(url, offset, tag, status, header) {
      if (status === 404) throw Object.assign(new Error(`${url}: HTTP 404`), {code: "ENOENT"});
      if (status === 412) throw new Error(`${url}: the file changed since it was opened`);
      if (status === 200) {
        throw new Error(`${url}: the server sent the whole file; it must answer ranges of bytes (206)`);
      }
      if (status !== 206) throw new Error(`${url}: HTTP ${status}, expected 206`);
      const range = /^bytes (\d+)-(\d+)\/(\d+)$/.exec(header("Content-Range") ?? "");
      const got = header("ETag");
      if (range === null || Number(range[1]) !== offset) {
        throw new Error(`${url}: no Content-Range of the bytes that were asked for`);
      }
      if (got === null || got.startsWith("W/")) throw new Error(`${url}: no strong ETag`);
      if (tag !== null && got !== tag) throw new Error(`${url}: the file changed since it was opened`);
      const nBytes = Number(range[2]) - offset + 1;
      this.#httpBytes += nBytes;
      return {nBytes, size: Number(range[3]), tag: got};
    }

    #tried(call) {
      try {
        return call();
      } catch (error) {
        return this.#fail(error);
      }
    }

    #fail(error) {
      this.#error = error.message;
      return error.code === "ENOENT" ? kNoEntry : kIo;
    }
  }

  exports.HttpFiles = HttpFiles;
})(typeof module === "object" ? module.exports : (globalThis.qsf ??= {}));

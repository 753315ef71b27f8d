// SPDX-License-Identifier: MIT
//
// Files of a server, read by ranges, for a Worker: the engine waits for every read. A server has to
// answer 206 with Content-Range and a strong ETag; a file that changes is an error. With `cache`,
// what was read is kept in the browser's private files (OPFS) for the next time.
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
      return this.#tried(() => {
        const first = this.#get(url, 0, kBlockBytes, null);
        const file = {url, size: first.size, tag: first.tag, at: 0, bytes: first.bytes};
        if (this.#kept !== null) this.#tryToKeep(() => this.#kept.begin(file.tag, file.size));
        return this.#files.push(file) - 1;
      });
    }

    size(handle) {
      return this.#files[handle].size;
    }

    read(handle, to, offset) {
      return this.#tried(() => {
        const file = this.#files[handle];
        const n = Math.max(0, Math.min(to.length, file.size - offset));
        if (n === 0) return 0;
        if (this.#kept !== null) return this.#readKept(file, to.subarray(0, n), offset);
        if (offset < file.at || offset + n > file.at + file.bytes.length) {
          // Small reads are of the file's tables, one after the other.
          const got = this.#get(file.url, offset, Math.max(n, kBlockBytes), file.tag);
          if (n >= kBlockBytes) {
            to.set(got.bytes.subarray(0, n));
            return n;
          }
          file.at = offset;
          file.bytes = got.bytes;
        }
        to.set(file.bytes.subarray(offset - file.at, offset - file.at + n));
        return n;
      });
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
    #readKept(file, to, offset) {
      const kept = this.#kept;
      const last = Math.floor((offset + to.length - 1) / kBlockBytes);
      for (let block = Math.floor(offset / kBlockBytes); block <= last; ++block) {
        if (kept.blocks[block] === 1) continue;
        let end = block + 1;
        while (end <= last && kept.blocks[end] === 0) ++end;
        const got = this.#get(file.url, block * kBlockBytes, (end - block) * kBlockBytes, file.tag);
        if (!this.#tryToKeep(() => kept.write(got.bytes, block))) return this.#readPast(file, to, offset);
        block = end - 1;
      }
      const n = kept.read(to, offset);
      this.#keptBytes += n;
      return n;
    }

    #readPast(file, to, offset) {
      to.set(this.#get(file.url, offset, to.length, file.tag).bytes.subarray(0, to.length));
      return to.length;
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

    #get(url, offset, nBytes, tag) {
      const request = new XMLHttpRequest();
      request.open("GET", url, false);
      request.responseType = "arraybuffer";
      request.setRequestHeader("Range", `bytes=${offset}-${offset + nBytes - 1}`);
      if (tag !== null) request.setRequestHeader("If-Match", tag);
      request.send();
      if (request.status === 404) throw Object.assign(new Error(`${url}: HTTP 404`), {code: "ENOENT"});
      if (request.status === 412) throw new Error(`${url}: the file changed since it was opened`);
      if (request.status === 200) {
        throw new Error(`${url}: the server sent the whole file; it must answer ranges of bytes (206)`);
      }
      if (request.status !== 206) throw new Error(`${url}: HTTP ${request.status}, expected 206`);
      const range = /^bytes (\d+)-(\d+)\/(\d+)$/.exec(request.getResponseHeader("Content-Range") ?? "");
      const got = request.getResponseHeader("ETag");
      if (range === null || Number(range[1]) !== offset) {
        throw new Error(`${url}: no Content-Range of the bytes that were asked for`);
      }
      if (got === null || got.startsWith("W/")) throw new Error(`${url}: no strong ETag`);
      if (tag !== null && got !== tag) throw new Error(`${url}: the file changed since it was opened`);
      const bytes = new Uint8Array(request.response);
      this.#httpBytes += bytes.length;
      if (bytes.length !== Number(range[2]) - offset + 1) throw new Error(`${url}: the answer is cut off`);
      return {bytes, size: Number(range[3]), tag: got};
    }

    #tried(call) {
      try {
        return call();
      } catch (error) {
        this.#error = error.message;
        return error.code === "ENOENT" ? kNoEntry : kIo;
      }
    }
  }

  exports.HttpFiles = HttpFiles;
})(typeof module === "object" ? module.exports : (globalThis.qsf ??= {}));

// SPDX-License-Identifier: MIT
//
// The engine's module as a class: synchronous, for a Worker or a program of node. Strings go in and
// out as UTF-8 of the module's memory.
"use strict";

(function (exports) {
  const kPageBytes = 65536;
  const kMegabyte = 1e6;  // as in the interface of C
  const kCodes = ["ok", "invalid_argument", "not_found", "corrupt", "unsupported", "out_of_budget",
                  "io", "cancelled", "internal"];

  // An error of the engine or of its files; `code` is the name of a qsf_code.
  class QsfError extends Error {
    constructor(code, message) {
      super(message);
      this.name = "QsfError";
      this.code = code;
    }
  }

  class Engine {
    // factory: qsfModule of qsf_module.js, wasm: a compiled qsf_module.wasm or a promise of one,
    // files: an object with open, size, read and close (files_http.js). With nThreads: those of
    // qsf_threads.js, whose address is `script`, and a ReaderFiles (reader_files.js).
    // megabytes: all the memory that the module may ever have.
    static async create({factory, wasm, files, megabytes, nThreads = 0, script}) {
      if (!(megabytes >= 8 && megabytes <= 4095)) {
        throw new QsfError("invalid_argument", `memory: ${megabytes} MB, expected 8 to 4095`);
      }
      if (!(Number.isInteger(nThreads) && nThreads >= 0 && nThreads <= 64)) {
        throw new QsfError("invalid_argument", `threads: ${nThreads}, expected 0 to 64`);
      }
      const pages = Math.floor(megabytes * kMegabyte / kPageBytes);
      const memory = new WebAssembly.Memory({initial: pages, maximum: pages, shared: nThreads > 0});
      const compiled = await wasm;
      const module = await factory({
        wasmMemory: memory,
        files,
        nThreads,
        mainScriptUrlOrBlob: script,
        locateFile: (name) => script.replace(/[^/]*$/, name),
        print: () => {},
        printErr: () => {},
        instantiateWasm(imports, done) {
          const instance = new WebAssembly.Instance(compiled, imports);
          done(instance, compiled);
          return instance.exports;
        },
      });
      if (nThreads > 0) await files.begin(memory, module._qsf_page_mailbox() >>> 0);
      return new Engine(module, memory, files, megabytes, nThreads);
    }

    constructor(module, memory, files, megabytes, nThreads) {
      this.module = module;
      this.nThreads = nThreads;
      this.memory = memory;
      this.files = files;
      this.megabytes = megabytes;
      this.bytes = new Uint8Array(memory.buffer);
    }

    open(path, {context = 0} = {}) {
      this.#with(path, (at) => this.#check(
        this.module._qsf_web_open(at, this.megabytes, context, Math.max(1, this.nThreads))));
      return this.info();
    }

    info() {
      const text = this.#text(this.module._qsf_web_info());
      if (text === "") return null;
      return {...JSON.parse(text), threads: this.nThreads, memoryBytes: this.memory.buffer.byteLength};
    }

    // Begins a text; options: maxTokens, temperature, topP, topK, seed, stop. Returns how many tokens
    // of the prompt were computed before.
    begin(prompt, options = {}, isChat = false) {
      const number = (value) => (value === undefined ? -1 : value);
      for (const stop of options.stop ?? []) {
        this.#with(stop, (at) => this.module._qsf_web_add_stop(at));
      }
      return this.#with(prompt, (at, nBytes) => this.#check(this.module._qsf_web_begin(
        at, nBytes, isChat ? 1 : 0, options.maxTokens ?? 256, number(options.temperature),
        number(options.topP), number(options.topK), number(options.seed))));
    }

    // The prompt of a conversation: [{role, content}], by the model's own template, or one that is
    // given by its name or source.
    chatPrompt(messages, template = "") {
      const packed = [template, ...messages.flatMap(({role, content}) => [role, content]), ""].join("\0");
      if (packed.split("\0").length !== 2 * messages.length + 2) {
        throw new QsfError("invalid_argument", "chat: a message or the template has a NUL");
      }
      return this.#with(packed, (at) => {
        const text = this.module._qsf_web_chat_prompt(at, messages.length);
        if (text === 0) this.#check(-this.module._qsf_web_error_code());
        return this.#text(text);
      });
    }

    // One pass. Returns {text, done}.
    step() {
      const result = this.#check(this.module._qsf_web_step());
      return {text: this.#text(this.module._qsf_web_text()), done: result === 1};
    }

    // Ends the text that was begun. Only of a complete one there are counts and times.
    end() {
      const text = this.#text(this.module._qsf_web_end());
      return text === "" ? {reason: "cancelled"} : JSON.parse(text);
    }

    close() {
      this.module._qsf_web_close();
    }

    #text(at) {
      const begin = at >>> 0;
      // A copy: browsers decode no memory that is shared.
      return new TextDecoder().decode(this.bytes.slice(begin, this.bytes.indexOf(0, begin)));
    }

    // Calls with the address and length of a text in the module's memory.
    #with(text, call) {
      const bytes = new TextEncoder().encode(text);
      const at = this.module._malloc(bytes.length + 1) >>> 0;
      if (at === 0) throw new QsfError("out_of_budget", `no memory for a text of ${bytes.length} bytes`);
      this.bytes.set(bytes, at);
      this.bytes[at + bytes.length] = 0;
      try {
        return call(at, bytes.length);
      } finally {
        this.module._free(at);
      }
    }

    #check(result) {
      if (result >= 0) return result;
      const code = kCodes[-result] ?? "internal";
      const detail = this.files.takeError?.();
      const message = this.#text(this.module._qsf_web_error());
      throw new QsfError(code, detail ? `${message} (${detail})` : message);
    }
  }

  exports.QsfError = QsfError;
  exports.Engine = Engine;
})(typeof module === "object" ? module.exports : (globalThis.qsf ??= {}));

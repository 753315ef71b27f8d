// SPDX-License-Identifier: MIT
//
// Files of an engine with threads, which another Worker reads (reader.js).
"use strict";

(function (exports) {
  const isNode = typeof process === "object" && typeof importScripts === "undefined";
  const Mailbox = isNode ? require("./mailbox.js").Mailbox : (importScripts("mailbox.js"), globalThis.qsf.Mailbox);

  class ReaderFiles {
    #worker;
    #options;
    #mailbox;

    constructor(options) {
      this.#options = options;
      this.#worker = isNode ? new (require("node:worker_threads").Worker)(__dirname + "/reader.js")
        : new Worker("reader.js");
    }

    async prepare() {}

    // The engine asks by a mailbox in its memory from now on.
    async begin(memory, mailbox) {
      this.#mailbox = new Mailbox(memory, mailbox);
      const ready = this.#heard();
      this.#worker.postMessage({...this.#options, memory, mailbox});
      await ready;
    }

    takeError() {
      return this.#mailbox.takeError();
    }

    describe() {
      return this.#mailbox.description();
    }

    // Returns when the files are closed, and others may open them.
    async end() {
      const ended = this.#heard();
      this.#mailbox.stop();
      await ended;
      this.#worker.terminate();
    }

    // The Worker's next message.
    #heard() {
      return new Promise((resolve, reject) => {
        if (isNode) {
          this.#worker.once("message", resolve);
          this.#worker.once("error", reject);
        } else {
          this.#worker.onmessage = resolve;
          this.#worker.onerror = (event) => reject(new Error(event.message ?? "reader.js did not load"));
        }
      });
    }
  }

  exports.ReaderFiles = ReaderFiles;
})(typeof module === "object" ? module.exports : (globalThis.qsf ??= {}));

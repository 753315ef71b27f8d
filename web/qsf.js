// SPDX-License-Identifier: MIT
//
// Language models in a page or in node, in the memory you give them:
//
//   const model = await qsf.open("model.qsf", {megabytes: 64});
//   for await (const text of model.generate("Once upon a time", {maxTokens: 100})) show(text);
//   const {text} = await model.chat([{role: "user", content: "Hello"}]);
//   await model.close();
//
// The engine runs in a Worker, so the page stays responsive, and in more of them where memory can be
// shared: in node, and in pages that are isolated (docs/web.md). Errors are Error objects with a `code`.
"use strict";

(function (exports) {
  const isNode = typeof process === "object" && typeof document === "undefined";
  const base = isNode ? __dirname + "/" : new URL(".", document.currentScript.src).href;

  function makeWorker() {
    if (isNode) return new (require("node:worker_threads").Worker)(base + "worker.js");
    return new Worker(base + "worker.js");
  }

  // Processors are mostly two to a core. 0: no memory can be shared.
  function defaultThreads() {
    if (isNode) return Math.min(4, Math.ceil(require("node:os").cpus().length / 2));
    if (!globalThis.crossOriginIsolated || typeof SharedArrayBuffer === "undefined") return 0;
    return Math.min(4, Math.ceil((navigator.hardwareConcurrency ?? 1) / 2));
  }

  class Model {
    #worker;
    #waiting = new Map();  // id: {resolve, reject, onText}
    #nextId = 0;
    #ended = null;

    constructor() {
      this.#worker = makeWorker();
      const take = (message) => this.#take(message);
      const fail = (error) => this.#fail(new Error(error.message ?? "the Worker failed"));
      if (isNode) {
        this.#worker.on("message", take);
        this.#worker.on("error", fail);
      } else {
        this.#worker.onmessage = (event) => take(event.data);
        this.#worker.onerror = fail;
      }
    }

    async open(path, options) {
      const url = isNode ? path : new URL(path, document.baseURI).href;
      const threads = defaultThreads() === 0 ? 0 : options.threads ?? defaultThreads();
      try {
        this.model = await this.#call("open", {modules: base, ...options, path: url, threads});
      } catch (error) {
        await this.#stop(error);
        throw error;
      }
      return this;
    }

    // Texts as they are written; the last value, by `return`, is the result. Leaving the loop
    // cancels. Options: maxTokens, temperature, topP, topK, seed, stop, signal (an AbortSignal).
    generate(prompt, options = {}) {
      return this.#write({prompt}, options);
    }

    // The same for the answer to a conversation: [{role, content}, ...]. `template` in the options
    // replaces the model's own: the name of one (chatml) or its Jinja source.
    chatStream(messages, options = {}) {
      return this.#write({messages}, options);
    }

    // The whole answer: {text, reason, tokens, ...}.
    async chat(messages, options = {}) {
      const stream = this.chatStream(messages, options);
      let text = "";
      for (;;) {
        const {value, done} = await stream.next();
        if (done) return {...value, text};
        text += value;
      }
    }

    // Ends the text that is being written, after its next token.
    cancel() {
      this.#worker.postMessage({call: "cancel"});
    }

    info() {
      return this.#call("info", {});
    }

    async close() {
      if (this.#ended !== null) return;
      await this.#call("close", {});
      await this.#stop(new Error("the model is closed"));
    }

    async * #write(what, {signal, ...options}) {
      signal?.throwIfAborted();
      const texts = [];
      let wake = () => {};
      let finished = false;
      const abort = () => this.cancel();
      signal?.addEventListener("abort", abort);
      const result = this.#call("write", {...what, options}, (text) => {
        texts.push(text);
        wake();
      });
      const end = () => {
        finished = true;
        wake();
      };
      result.then(end, end);
      try {
        while (!finished || texts.length > 0) {
          if (texts.length > 0) {
            yield texts.shift();
          } else {
            await new Promise((resolve) => {
              wake = resolve;
            });
          }
        }
        return await result;
      } finally {
        signal?.removeEventListener("abort", abort);
        if (!finished) this.cancel();
      }
    }

    #call(call, values, onText) {
      if (this.#ended !== null) return Promise.reject(this.#ended);
      return new Promise((resolve, reject) => {
        const id = this.#nextId++;
        this.#waiting.set(id, {resolve, reject, onText});
        this.#worker.postMessage({...values, id, call});
      });
    }

    #take({id, text, result, error}) {
      const waiting = this.#waiting.get(id);
      if (text !== undefined) {
        waiting.onText(text);
        return;
      }
      this.#waiting.delete(id);
      if (error === undefined) waiting.resolve(result);
      else waiting.reject(Object.assign(new Error(error.message), {code: error.code}));
    }

    #fail(error) {
      this.#ended ??= error;
      for (const {reject} of this.#waiting.values()) reject(error);
      this.#waiting.clear();
    }

    async #stop(error) {
      this.#fail(error);
      await this.#worker.terminate();
    }
  }

  // Opens a model: a path in node, a URL in a page, whose server answers ranges. Options:
  //   megabytes   all the memory of the engine, in 10^6 bytes (64)
  //   context     positions of the context; 0: as many as fit
  //   cache       in a page: keeps what was read in the browser's private files (false)
  //   threads     that compute, while another one reads: 1 to 64, by default half of the processors
  //               and 4 at most; 0, or where no memory can be shared: one Worker does everything
  //   modules     the folder of qsf_module.js and qsf_threads.js with a / at its end, if not this one
  exports.open = (path, options = {}) => new Model().open(path, {megabytes: 64, context: 0, ...options});
})(typeof module === "object" ? module.exports : (globalThis.qsf ??= {}));

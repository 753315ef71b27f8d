// SPDX-License-Identifier: MIT
//
// The Worker that runs the engine: takes requests {id, call, ...} and answers {id, result},
// {id, error} or, of texts, {id, text} for every piece. Between two passes it hears messages, so a
// text can be cancelled after any token.
"use strict";

(function () {
  const isNode = typeof process === "object" && typeof importScripts === "undefined";
  const port = isNode ? require("node:worker_threads").parentPort : globalThis;
  let api = globalThis.qsf;
  let engine = null;
  let cancelled = false;

  // Lets waiting messages be heard; timers of browsers would wait 4 ms.
  const channel = isNode ? null : new MessageChannel();
  const heard = () => new Promise((resolve) => {
    if (isNode) {
      setImmediate(resolve);
      return;
    }
    channel.port1.onmessage = resolve;
    channel.port2.postMessage(0);
  });

  async function load(request) {
    if (isNode) {
      const fs = require("node:fs");
      const factory = require(request.moduleUrl);
      api = {...require("./engine.js"), ...require("./files_http.js"), ...require("./files_node.js")};
      const wasm = fs.readFileSync(request.moduleUrl.replace(/\.js$/, ".wasm"));
      return {factory, wasm, files: new api.NodeFiles()};
    }
    importScripts("engine.js", "files_http.js", request.moduleUrl);
    api = globalThis.qsf;
    const files = new api.HttpFiles({cache: request.cache});
    const answer = await fetch(request.moduleUrl.replace(/\.js$/, ".wasm"));
    if (!answer.ok) throw new api.QsfError("not_found", `${answer.url}: HTTP ${answer.status}`);
    return {factory: globalThis.qsfModule, wasm: answer.arrayBuffer(), files};
  }

  async function write(request) {
    cancelled = false;
    const prompt = request.messages ? engine.chatPrompt(request.messages, request.options.template)
      : request.prompt;
    const reused = engine.begin(prompt, request.options, Boolean(request.messages));
    for (;;) {
      const {text, done} = engine.step();
      if (text !== "") port.postMessage({id: request.id, text});
      await heard();
      if (done || cancelled) return {...engine.end(), reusedTokens: reused};
    }
  }

  const calls = {
    async open(request) {
      const {factory, wasm, files} = await load(request);
      await files.prepare(request.path);
      engine = await api.Engine.create({factory, wasm, files, megabytes: request.megabytes});
      return engine.open(request.path, {context: request.context});
    },
    write,
    async info() {
      return {...engine.info(), ...engine.files.describe?.()};
    },
    async close() {
      engine?.close();
      engine?.files.end?.();
      engine = null;
    },
  };

  // One request after the other; a cancellation does not wait.
  let last = Promise.resolve();
  function take(request) {
    if (request.call === "cancel") {
      cancelled = true;
      return;
    }
    last = last.then(async () => {
      try {
        port.postMessage({id: request.id, result: await calls[request.call](request)});
      } catch (error) {
        port.postMessage({id: request.id,
                          error: {code: error.code ?? "internal", message: error.message}});
      }
    });
  }
  if (isNode) {
    port.on("message", take);
  } else {
    port.onmessage = (event) => take(event.data);
  }
})();

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

  async function compile(url) {
    if (isNode) return new WebAssembly.Module(require("node:fs").readFileSync(url));
    const answer = await fetch(url);
    if (!answer.ok) throw new api.QsfError("not_found", `${url}: HTTP ${answer.status}`);
    // A browser compiles it while it arrives and keeps the result.
    if (answer.headers.get("Content-Type") === "application/wasm") return WebAssembly.compileStreaming(answer);
    return WebAssembly.compile(await answer.arrayBuffer());
  }

  async function load({path, modules, threads, cache}) {
    const script = modules + (threads > 0 ? "qsf_threads.js" : "qsf_module.js");
    const parts = ["engine.js", threads > 0 ? "reader_files.js" : isNode ? "files_node.js" : "files_http.js"];
    if (isNode) {
      for (const part of parts) api = {...api, ...require("./" + part)};
    } else {
      importScripts(...parts);
      api = globalThis.qsf;
    }
    const wasm = compile(script.replace(/\.js$/, ".wasm"));
    wasm.catch(() => {});  // it is waited for below, perhaps after another error
    if (!isNode) importScripts(script);
    const factory = isNode ? require(script) : globalThis.qsfModule;
    const Files = threads > 0 ? api.ReaderFiles : isNode ? api.NodeFiles : api.HttpFiles;
    const files = new Files({path, cache});
    await files.prepare(path);
    return {factory, wasm, files, script, nThreads: threads};
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
      const loaded = await load(request);
      engine = await api.Engine.create({...loaded, megabytes: request.megabytes});
      return engine.open(request.path, {context: request.context});
    },
    write,
    async info() {
      return {...engine.info(), ...engine.files.describe?.()};
    },
    async close() {
      engine?.close();
      await engine?.files.end?.();
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

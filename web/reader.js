// SPDX-License-Identifier: MIT
//
// The Worker that reads files for the threads of an engine, one read at a time, while these compute.
// Files of a browser belong to the Worker that opened them.
"use strict";

(function () {
  const isNode = typeof process === "object" && typeof importScripts === "undefined";
  const port = isNode ? require("node:worker_threads").parentPort : globalThis;

  async function serve({path, cache, memory, mailbox}) {
    let api = globalThis.qsf;
    if (isNode) {
      api = {...require("./mailbox.js"), ...require("./files_node.js")};
    } else {
      importScripts("mailbox.js", "files_http.js");
      api = globalThis.qsf;
    }
    const files = isNode ? new api.NodeFiles() : new api.HttpFiles({cache});
    await files.prepare(path);
    port.postMessage("ready");
    await new api.Mailbox(memory, mailbox).answer(files);
    files.end?.();
    port.postMessage("ended");
  }

  if (isNode) {
    port.on("message", serve);
  } else {
    port.onmessage = (event) => serve(event.data);
  }
})();

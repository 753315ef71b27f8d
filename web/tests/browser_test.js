// SPDX-License-Identifier: MIT
//
// The engine in headless Chromium, from `qsf serve --web`:  node --test browser_test.js
//
// Variables as for node_test.js; QSF_WEB_MODULES has a copy of the model too. QSF_WEB_TOOL is qsf.
"use strict";

const assert = require("node:assert");
const fs = require("node:fs");
const http = require("node:http");
const path = require("node:path");
const test = require("node:test");
const {Page, WebServer, writes} = require("./browser_page.js");

const kSmall = {megabytes: 10, context: 256};
const folder = process.env.QSF_WEB_MODULES;
const expected = fs.readFileSync(process.env.QSF_WEB_EXPECTED, "utf8").trim();
const model = path.basename(process.env.QSF_WEB_MODEL);
const changing = path.join(folder, "changing.qsf");
const whole = (text) => ("Once upon a time" + text).trim();

let server;
let page;

test.before(async () => {
  fs.copyFileSync(path.join(folder, model), changing);
  server = await WebServer.start(process.env.QSF_WEB_TOOL, folder, path.join(folder, model));
  page = await Page.open(server.url + "demo.html");
});
test.after(async () => {
  await page?.close();
  await server?.stop();
  fs.rmSync(changing);
});

// A server on a port of its own; the URL of what it serves.
async function listening(answer) {
  const own = http.createServer(answer);
  await new Promise((resolve) => own.listen(0, "127.0.0.1", resolve));
  test.after(() => {
    own.closeAllConnections();
    own.close();
  });
  return `http://127.0.0.1:${own.address().port}/`;
}

test("writes what the native engine writes, with any number of threads", async (context) => {
  assert.strictEqual(await page.run("crossOriginIsolated"), true);
  for (const threads of [0, 1, 4]) {
    const result = await page.run(writes(model, {megabytes: 32, threads}));
    assert.strictEqual(result.info.threads, threads);
    assert.strictEqual(whole(result.text), expected, `${threads} threads`);
    context.diagnostic(`${threads} threads: first text after ${result.first.toFixed(0)} ms, ` +
                       `${(result.tokens / result.generateMs * 1000).toFixed(1)} tokens/s`);
  }
});

test("keeps what it read and reads it there the next time", async () => {
  for (const [first, second] of [[0, 2], [2, 0]]) {
    await page.run("navigator.storage.getDirectory().then((all) => all.removeEntry('qsf', {recursive: true})).catch(() => {})");
    const reading = await page.run(writes(model, {...kSmall, cache: true, threads: first}));
    assert.strictEqual(whole(reading.text), expected);
    assert.strictEqual(reading.info.cacheNote, "");
    assert.ok(reading.info.httpBytes > 3000000);
    const kept = await page.run(writes(model, {...kSmall, cache: true, threads: second}));
    assert.strictEqual(whole(kept.text), expected);
    assert.ok(kept.info.httpBytes <= 65536, `${kept.info.httpBytes} bytes by HTTP again`);
  }
});

test("uses one Worker in a page that is not isolated", async () => {
  const url = await listening((request, response) => {
    http.get(server.url + request.url.slice(1), {headers: request.headers}, (answer) => {
      delete answer.headers["cross-origin-opener-policy"];
      delete answer.headers["cross-origin-embedder-policy"];
      response.writeHead(answer.statusCode, answer.headers);
      answer.pipe(response);
    });
  });
  const plain = await Page.open(url + "demo.html");
  try {
    assert.strictEqual(await plain.run("crossOriginIsolated"), false);
    const result = await plain.run(writes(model, {megabytes: 32, threads: 4}));
    assert.strictEqual(result.info.threads, 0);
    assert.strictEqual(whole(result.text), expected);
  } finally {
    await plain.close();
  }
});

test("notices that the file changes while it is read", async () => {
  for (const threads of [0, 2]) {
    const options = JSON.stringify({...kSmall, threads});
    await page.run(`qsf.open("changing.qsf", ${options}).then((opened) => { globalThis.open = opened; })`);
    fs.utimesSync(changing, new Date(), new Date(Date.now() - 1000 * (threads + 1)));
    const rest = "(async () => { for await (const text of open.generate('Once', {maxTokens: 9})); })()";
    await assert.rejects(page.run(rest), /the file changed since it was opened/);
    await page.run("open.close()");
  }
});

test("refuses a server without ranges by name", async () => {
  const url = await listening((request, response) => {
    response.setHeader("Access-Control-Allow-Origin", "*");
    response.setHeader("Access-Control-Allow-Headers", "range");
    response.setHeader("Cross-Origin-Resource-Policy", "cross-origin");
    response.end("all of it");
  });
  for (const threads of [0, 2]) {
    await assert.rejects(page.run(writes(url + "model.qsf", {megabytes: 32, threads})),
                         /must answer ranges of bytes/);
  }
});

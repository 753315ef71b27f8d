// SPDX-License-Identifier: MIT
//
// The engine in headless Chromium, from serve.js:  node --test browser_test.js
//
// Variables as for node_test.js, and QSF_WEB_FOLDER, where make_web put everything.
"use strict";

const assert = require("node:assert");
const fs = require("node:fs");
const path = require("node:path");
const test = require("node:test");
const {Page, writes} = require("./browser_page.js");
const {serve} = require("../serve.js");

let server;
let page;
let base;

test.before(async () => {
  server = await serve(0, [process.env.QSF_WEB_FOLDER, path.dirname(process.env.QSF_WEB_MODEL)]);
  base = `http://127.0.0.1:${server.address().port}/`;
  page = await Page.open(base + "demo.html");
});
test.after(async () => {
  await page?.close();
  server?.closeAllConnections();
  server?.close();
});

const expected = fs.readFileSync(process.env.QSF_WEB_EXPECTED, "utf8").trim();
const model = path.basename(process.env.QSF_WEB_MODEL);
const whole = (text) => ("Once upon a time" + text).trim();

test("writes what the native engine writes", async (context) => {
  const result = await page.run(writes(model, {megabytes: 32}));
  assert.strictEqual(whole(result.text), expected);
  context.diagnostic(`first text after ${result.first.toFixed(0)} ms, ` +
                     `${(result.tokens / result.generateMs * 1000).toFixed(1)} tokens/s`);
});

test("keeps what it read and reads it there the next time", async () => {
  const options = {megabytes: 10, context: 256, cache: true};
  const first = await page.run(writes(model, options));
  assert.strictEqual(whole(first.text), expected);
  assert.strictEqual(first.info.cacheNote, "");
  const second = await page.run(writes(model, options));
  assert.strictEqual(whole(second.text), expected);
  assert.ok(second.info.httpBytes <= 65536, `${second.info.httpBytes} bytes by HTTP again`);
});

test("refuses a server without ranges by name", async () => {
  const http = require("node:http");
  const plain = http.createServer((request, response) => {
    response.setHeader("Access-Control-Allow-Origin", "*");
    response.setHeader("Access-Control-Allow-Headers", "range");
    response.setHeader("Cross-Origin-Resource-Policy", "cross-origin");
    response.end("all of it");
  });
  await new Promise((resolve) => plain.listen(0, "127.0.0.1", resolve));
  const url = `http://127.0.0.1:${plain.address().port}/model.qsf`;
  await assert.rejects(page.run(writes(url, {megabytes: 32})), /must answer ranges of bytes/);
  plain.closeAllConnections();
  plain.close();
});

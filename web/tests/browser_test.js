// SPDX-License-Identifier: MIT
//
// The engine in headless Chromium, from serve.js:  node --test browser_test.js
//
// Variables as for node_test.js, and QSF_WEB_FOLDER, where make_web put everything.
"use strict";

const assert = require("node:assert");
const {spawn} = require("node:child_process");
const fs = require("node:fs");
const os = require("node:os");
const path = require("node:path");
const test = require("node:test");
const {serve} = require("../serve.js");

// A page of headless Chromium, driven through its debugging pipe.
class Page {
  #answers = new Map();
  #lastId = 0;

  static async open(url) {
    const page = new Page();
    page.profile = fs.mkdtempSync(path.join(os.tmpdir(), "qsf_browser_test."));
    page.process = spawn("chromium", ["--headless=new", "--no-sandbox", "--disable-dev-shm-usage",
                                      "--disable-gpu", "--remote-debugging-pipe",
                                      `--user-data-dir=${page.profile}`],
                         {stdio: ["ignore", "ignore", "ignore", "pipe", "pipe"]});
    let rest = "";
    page.process.stdio[4].on("data", (data) => {
      const parts = (rest + data).split("\0");
      rest = parts.pop();
      for (const part of parts) page.#take(JSON.parse(part));
    });
    const {targetId} = await page.#call("Target.createTarget", {url: "about:blank"});
    page.session = (await page.#call("Target.attachToTarget", {targetId, flatten: true})).sessionId;
    await page.#call("Page.navigate", {url});
    for (;;) {
      if (await page.run("document.readyState === 'complete' && typeof qsf === 'object'")) return page;
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
  }

  // The value of an expression, waited for.
  async run(expression) {
    const {result, exceptionDetails} = await this.#call("Runtime.evaluate", {
      expression, awaitPromise: true, returnByValue: true});
    if (exceptionDetails) {
      throw new Error(exceptionDetails.exception?.description ?? exceptionDetails.text);
    }
    return result.value;
  }

  async close() {
    const ended = new Promise((resolve) => this.process.once("exit", resolve));
    this.process.kill();
    await ended;
    fs.rmSync(this.profile, {recursive: true, force: true, maxRetries: 5});
  }

  #call(method, params) {
    const id = ++this.#lastId;
    this.process.stdio[3].write(JSON.stringify({id, method, params, sessionId: this.session}) + "\0");
    return new Promise((resolve, reject) => this.#answers.set(id, {resolve, reject}));
  }

  #take({id, result, error}) {
    const waiting = this.#answers.get(id);
    this.#answers.delete(id);
    if (error) waiting?.reject(new Error(error.message));
    else waiting?.resolve(result);
  }
}

// In the page: opens the model, writes, closes; returns the text, counts and times.
function writes(model, options) {
  return `(async () => {
    const began = performance.now();
    const model = await qsf.open(${JSON.stringify(model)}, ${JSON.stringify(options)});
    let text = "", first = 0;
    const stream = model.generate("Once upon a time", {maxTokens: 100, temperature: 0});
    for (;;) {
      const {value, done} = await stream.next();
      if (first === 0) first = performance.now() - began;
      if (done) {
        const info = await model.info();
        await model.close();
        return {...value, text, first, info};
      }
      text += value;
    }
  })()`;
}

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

test("writes what the native engine writes, soon", async (context) => {
  const result = await page.run(writes(model, {megabytes: 32}));
  assert.strictEqual(whole(result.text), expected);
  assert.ok(result.first < 3000, `first text after ${result.first} ms`);
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

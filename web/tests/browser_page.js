// SPDX-License-Identifier: MIT
//
// `qsf serve` and headless Chromium, for browser_test.js and scripts/measure/measure_web.js.
"use strict";

const {spawn} = require("node:child_process");
const fs = require("node:fs");
const os = require("node:os");
const path = require("node:path");

// `qsf serve --web FOLDER` on a free port.
class WebServer {
  static async start(tool, folder, model) {
    const server = new WebServer();
    server.process = spawn(tool, ["serve", model, "--web", folder, "--port", "0"],
                           {stdio: ["ignore", "ignore", "pipe"]});
    let told = "";
    server.url = await new Promise((resolve, reject) => {
      server.process.stderr.on("data", (data) => {
        told += data;
        const match = /listening on (http:\S+)/.exec(told);
        if (match) resolve(match[1] + "/web/");
      });
      server.process.on("error", reject);
      server.process.on("exit", () => reject(new Error(`${tool} serve ended: ${told}`)));
    });
    return server;
  }

  async stop() {
    const ended = new Promise((resolve) => this.process.once("exit", resolve));
    this.process.kill();
    await ended;
  }
}

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

  // The renderer's share of memory (Linux).
  rendererBytes() {
    const parents = new Map();
    const about = (id, file) => {
      try {
        return fs.readFileSync(`/proc/${id}/${file}`, "utf8");
      } catch {
        return "";  // it has ended
      }
    };
    for (const id of fs.readdirSync("/proc").filter((name) => /^\d+$/.test(name))) {
      parents.set(Number(id), Number(about(id, "stat").replace(/^.*\) /, "").split(" ")[1]));
    }
    const isOurs = (id) => id === this.process.pid || (parents.has(id) && isOurs(parents.get(id)));
    let bytes = 0;
    for (const id of [...parents.keys()].filter(isOurs)) {
      if (!about(id, "cmdline").includes("--type=renderer")) continue;
      bytes += 1024 * Number(/^Pss:\s+(\d+)/m.exec(about(id, "smaps_rollup"))?.[1] ?? 0);
    }
    return bytes;
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
function writes(model, options, nTokens = 100) {
  return `(async () => {
    const began = performance.now();
    const model = await qsf.open(${JSON.stringify(model)}, ${JSON.stringify(options)});
    let text = "", first = 0;
    const stream = model.generate("Once upon a time", {maxTokens: ${nTokens}, temperature: 0});
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

module.exports = {Page, WebServer, writes};

#!/usr/bin/env node
// SPDX-License-Identifier: MIT
//
// Measures the engine in node beside the native SSE4.2 kernels, in turns.
//
//   measure_web.js MODEL.qsf [--web dist/web] [--tool build/release/bin/qsf] [--megabytes 1000]
//                  [--threads 0] [--tokens 200] [--runs 5] [--browser yes]
//
// Every run is a process of its own that opens the model and writes a greedy text without
// speculation; the rate is that of the tokens after the first. With fewer --megabytes than the
// model has, node reads weights in every pass; the native program has them in memory all the same.
// `warm` is the rate of a second text of the same process: by then node has compiled the module.
// With --browser yes, headless Chromium writes instead, from `qsf serve` on this machine: by HTTP, by
// HTTP while what was read is kept in private files, and from these; `first` is the time from open()
// to the first text. Then what the page takes: by the browser's own account, and the renderer's share
// of memory by Linux. Prints medians and ranges. Needs dist/web (scripts/package/make_web).
"use strict";

const {execFileSync, spawnSync} = require("node:child_process");
const fs = require("node:fs");
const os = require("node:os");
const path = require("node:path");

const kPrompt = "Once upon a time";
const kRoot = path.resolve(__dirname, "../..");
const kDefaults = {web: path.join(kRoot, "dist/web"), tool: path.join(kRoot, "build/release/bin/qsf"),
                   megabytes: "1000", threads: "0", tokens: "200", runs: "5", browser: "no"};

function fail(message) {
  console.error(`measure_web.js: ${message}`);
  process.exit(2);
}

function parse(words) {
  const options = {...kDefaults};
  for (let i = 0; i < words.length; ++i) {
    if (!words[i].startsWith("--")) {
      options.model = words[i];
    } else if (words[i].slice(2) in kDefaults && i + 1 < words.length) {
      options[words[i].slice(2)] = words[++i];
    } else {
      fail(`${words[i]}: unknown option, or without a value; see the head of this file`);
    }
  }
  if (options.model === undefined) fail("no MODEL.qsf; see the head of this file");
  for (const name of ["megabytes", "tokens", "runs"]) {
    if (!(Number(options[name]) >= 1)) fail(`--${name} ${options[name]}: expected a number of 1 or more`);
  }
  return options;
}

function howToOpen({megabytes, threads}) {
  return {megabytes: Number(megabytes), threads: Number(threads), context: 1024};
}

// Runs in a process of its own: prints the rates of two texts.
async function writeTexts(options) {
  const qsf = require(path.resolve(options.web, "qsf.js"));
  const model = await qsf.open(path.resolve(options.model), howToOpen(options));
  const rates = [];
  for (const prompt of [kPrompt, `${kPrompt},`]) {
    const stream = model.generate(prompt, {maxTokens: Number(options.tokens), temperature: 0});
    for (;;) {
      const {value, done} = await stream.next();
      if (!done) continue;
      if (!(value.tokens > 1)) throw new Error(`only ${value.tokens} tokens (${value.reason})`);
      rates.push((value.tokens - 1) / value.generateMs * 1e3);
      break;
    }
  }
  await model.close();
  console.log(rates.join(" "));
}

function rateOfTool(options) {
  const done = spawnSync(options.tool, ["run", options.model, kPrompt, "-n", options.tokens, "-c", "1024",
                                        "-t", String(Math.max(1, Number(options.threads))),
                                        "--temperature", "0", "--speculate", "off"],
                         {env: {...process.env, QSF_ISA: "sse42"}, encoding: "utf8"});
  const told = /generated \d+ tokens, ([\d.]+) tokens\/s/.exec(done.stderr ?? "");
  if (done.status !== 0 || told === null) fail(`${options.tool}: ${done.error ?? done.stderr}`);
  return Number(told[1]);
}

function rangeOf(rates) {
  const sorted = [...rates].sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  const median = sorted.length % 2 === 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
  return {median, least: sorted[0], most: sorted.at(-1)};
}

function measure(options) {
  const rates = {native: [], node: [], warm: []};
  for (let i = 0; i < Number(options.runs); ++i) {
    rates.native.push(rateOfTool(options));
    const words = Object.keys(kDefaults).flatMap((name) => [`--${name}`, options[name]]);
    const out = execFileSync(process.execPath, [__filename, options.model, ...words],
                             {env: {...process.env, QSF_MEASURE_WEB: "write"}, encoding: "utf8"});
    const [node, warm] = out.trim().split(" ").map(Number);
    rates.node.push(node);
    rates.warm.push(warm);
  }
  const native = rangeOf(rates.native).median;
  for (const [name, of] of Object.entries(rates)) {
    const {median, least, most} = rangeOf(of);
    console.log(`${name.padEnd(7)} ${median.toFixed(1)} tokens/s (${least.toFixed(1)} to ${most.toFixed(1)}), ` +
                `${(100 * median / native).toFixed(0)} % of native`);
  }
}

const inMb = (bytes) => (bytes / 1e6).toFixed(1);

// What a page with an open model takes.
async function printMemory(page, name, how) {
  await page.run(`(async () => {
    globalThis.held = await qsf.open(${JSON.stringify(name)}, ${JSON.stringify(how)});
    for await (const text of held.generate("${kPrompt}", {maxTokens: 20, temperature: 0}));
  })()`);
  const bytes = await page.run("performance.measureUserAgentSpecificMemory().then((all) => all.bytes)");
  console.log(`memory   ${inMb(bytes)} MB by the browser, ${inMb(page.rendererBytes())} MB of the renderer; ` +
              `before the model ${inMb(page.bytesBefore)} MB`);
  await page.run("held.close()");
}

// A browser of its own for every run: nothing is kept from the one before.
async function measureBrowser(options) {
  const {Page, WebServer, writes} = require(path.join(kRoot, "web/tests/browser_page.js"));
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), "qsf_measure_web."));
  const name = path.basename(options.model);
  fs.cpSync(path.resolve(options.web), folder, {recursive: true});
  fs.copyFileSync(options.model, path.join(folder, name));
  const server = await WebServer.start(options.tool, folder, path.join(folder, name));
  const results = {http: [], keeping: [], kept: []};
  for (let i = 0; i < Number(options.runs); ++i) {
    const page = await Page.open(server.url + "demo.html");
    page.bytesBefore = page.rendererBytes();
    for (const [of, all] of Object.entries(results)) {
      all.push(await page.run(writes(name, {...howToOpen(options), cache: of !== "http"}, Number(options.tokens))));
    }
    if (i + 1 === Number(options.runs)) await printMemory(page, name, howToOpen(options));
    await page.close();
  }
  await server.stop();
  fs.rmSync(folder, {recursive: true});
  for (const [how, of] of Object.entries(results)) {
    const rate = rangeOf(of.map(({tokens, generateMs}) => (tokens - 1) / generateMs * 1e3));
    const first = rangeOf(of.map((result) => result.first));
    const {httpBytes, keptBytes, memoryBytes} = of[0].info;
    console.log(`${how.padEnd(8)} ${rate.median.toFixed(2)} tokens/s (${rate.least.toFixed(2)} to ` +
                `${rate.most.toFixed(2)}), first ${first.median.toFixed(0)} ms (${first.least.toFixed(0)} to ` +
                `${first.most.toFixed(0)}); ${inMb(httpBytes)} MB by HTTP, ` +
                `${inMb(keptBytes)} MB from private files, memory of the module ${inMb(memoryBytes)} MB`);
  }
}

const options = parse(process.argv.slice(2));
if (process.env.QSF_MEASURE_WEB === "write") {
  writeTexts(options).catch((error) => fail(error.message));
} else if (options.browser === "yes") {
  measureBrowser(options).catch((error) => fail(error.message));
} else {
  measure(options);
}

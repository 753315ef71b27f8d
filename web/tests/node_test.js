// SPDX-License-Identifier: MIT
//
// The engine under node:  node --test node_test.js
//
// QSF_WEB_MODULES is the folder of the modules, QSF_WEB_MODEL the bundled model, QSF_WEB_EXPECTED a file with what
// the native scalar engine writes after kPrompt, 100 tokens, always the likeliest.
"use strict";

const assert = require("node:assert");
const fs = require("node:fs");
const os = require("node:os");
const {join} = require("node:path");
const test = require("node:test");
const qsf = require("../qsf.js");
const {Engine} = require("../engine.js");
const {ReaderFiles} = require("../reader_files.js");

const kPrompt = "Once upon a time";
const kGreedy = {maxTokens: 100, temperature: 0};
const kSmall = {megabytes: 10, context: 256};
const options = {modules: process.env.QSF_WEB_MODULES, megabytes: 32};
const expected = fs.readFileSync(process.env.QSF_WEB_EXPECTED, "utf8").trimEnd();
const path = process.env.QSF_WEB_MODEL;

const open = (more = {}) => qsf.open(path, {...options, ...more});

async function written(stream) {
  let text = "";
  for (;;) {
    const {value, done} = await stream.next();
    if (done) return {...value, text};
    text += value;
  }
}

test("writes what the native engine writes", async () => {
  const model = await open();
  assert.strictEqual(model.model.instructionSet, "wasm");
  const {text, tokens, reason} = await written(model.generate(kPrompt, kGreedy));
  assert.strictEqual((kPrompt + text).trimEnd(), expected.trimStart());
  assert.deepStrictEqual([tokens, reason], [100, "max_tokens"]);
  await model.close();
});

test("writes the same with any number of threads, all in memory or streamed", async () => {
  for (const [threads, how] of [[0, {}], [1, {}], [4, {}], [0, kSmall], [1, kSmall], [2, kSmall],
                                 [4, {megabytes: 11, context: 448}]]) {
    const model = await open({threads, ...how});
    assert.strictEqual(model.model.threads, threads);
    assert.ok(model.model.memoryBytes <= 1e6 * (how.megabytes ?? 32));
    const {text} = await written(model.generate(kPrompt, kGreedy));
    assert.strictEqual((kPrompt + text).trimEnd(), expected.trimStart(), `${threads} threads`);
    const {weightBytesRead, fileBytes} = await model.info();
    assert.strictEqual(weightBytesRead > 10 * fileBytes, "megabytes" in how, `${weightBytesRead} bytes read`);
    await model.close();
  }
});

test("refuses what threads cannot do, and says why", async () => {
  for (const threads of [0, 2]) {
    await assert.rejects(qsf.open("/nowhere/model.qsf", {...options, threads}),
                         {code: "not_found", message: /\/nowhere\/model.qsf.*no such file/});
    await assert.rejects(open({megabytes: 8, context: 1024, threads}), {code: "out_of_budget"});
  }
  await assert.rejects(open({threads: 65}), {code: "invalid_argument"});
  await assert.rejects(open({threads: 1.5}), {code: "invalid_argument"});
});

test("refuses threads that have no Worker, and takes those that have", async () => {
  const script = options.modules + "qsf_threads.js";
  const files = new ReaderFiles({});
  const wasm = new WebAssembly.Module(fs.readFileSync(options.modules + "qsf_threads.wasm"));
  const engine = await Engine.create({factory: require(script), wasm, files, megabytes: 32, nThreads: 2, script});
  engine.nThreads = 4;
  assert.throws(() => engine.open(path), {code: "out_of_budget"});
  engine.nThreads = 2;
  assert.strictEqual(engine.open(path).threads, 2);
  engine.close();
  await files.end();
  engine.module.PThread.terminateAllThreads();
});

test("reports a file that ends early, with threads and without", async (context) => {
  const folder = fs.mkdtempSync(join(os.tmpdir(), "qsf_node_test."));
  context.after(() => fs.rmSync(folder, {recursive: true}));
  for (const threads of [0, 2]) {
    const copy = join(folder, `${threads}.qsf`);
    fs.copyFileSync(path, copy);
    const model = await qsf.open(copy, {...options, ...kSmall, threads});
    fs.truncateSync(copy, 1000000);
    await assert.rejects(written(model.generate(kPrompt, kGreedy)), {code: "corrupt"});
    await model.close();
  }
});

test("cancels between tokens and goes on afterwards", async () => {
  const model = await open();
  let n = 0;
  for await (const text of model.generate(kPrompt, {maxTokens: 900, temperature: 0})) {
    assert.strictEqual(typeof text, "string");
    if (++n === 3) break;
  }
  const controller = new AbortController();
  const stream = model.generate(kPrompt, {...kGreedy, maxTokens: 900, signal: controller.signal});
  await stream.next();
  controller.abort();
  const rest = await written(stream);
  assert.strictEqual(rest.reason, "cancelled");
  const again = await written(model.generate(kPrompt, kGreedy));
  assert.strictEqual(again.tokens, 100);
  assert.ok(again.reusedTokens > 0);
  await model.close();
});

test("the same seed gives the same text", async () => {
  const model = await open();
  const sampled = {maxTokens: 40, temperature: 0.9, seed: 7};
  const first = await written(model.generate(kPrompt, sampled));
  assert.strictEqual((await written(model.generate(kPrompt, sampled))).text, first.text);
  await model.close();
});

test("answers a conversation as the prompt of its template says", async () => {
  const model = await open();
  const messages = [{role: "system", content: "Be brief."}, {role: "user", content: "Tell me of a cat."}];
  const source = "{% for m in messages %}{{ m.role }}: {{ m.content }} {% endfor %}The answer:";
  const answer = await model.chat(messages, {...kGreedy, template: source});
  assert.strictEqual(answer.tokens, 100);
  const prompt = "system: Be brief. user: Tell me of a cat. The answer:";
  const alike = await written(model.generate(prompt, kGreedy));
  assert.strictEqual(answer.text, alike.text);
  assert.notStrictEqual((await model.chat(messages, {...kGreedy, template: "chatml"})).text, answer.text);
  await model.close();
});

test("errors have codes and say what is wrong", async () => {
  await assert.rejects(qsf.open("/nowhere/model.qsf", options), {code: "not_found"});
  await assert.rejects(open({megabytes: 1}), {code: "invalid_argument"});
  await assert.rejects(open({megabytes: 8, context: 1024}), {code: "out_of_budget"});
  const model = await open();
  const messages = [{role: "user", content: "Hello"}];
  await assert.rejects(model.chat(messages, {template: "{% unknown %}"}), {code: "corrupt"});
  await assert.rejects(model.chat([{role: "user", content: "\0"}]), {code: "invalid_argument"});
  await model.close();
  await assert.rejects(written(model.generate(kPrompt, kGreedy)), /closed/);
});

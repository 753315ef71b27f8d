// SPDX-License-Identifier: MIT
//
// Requests to the server that sent the page. Addresses are relative to the page, so that it works
// behind a proxy that serves it in a folder.

import { EventStreamParser } from "./event_stream.js";
import { readKey } from "./store.js";

const kAnswerMs = 10000;  // for short answers; a conversation may wait in the queue

// What the server, or the way to it, answered instead of what was asked for.
export class ServerError extends Error {
  constructor(message, { status = 0, retryAfter = 0 } = {}) {
    super(message);
    this.status = status;
    this.retryAfter = retryAfter;
  }
}

function headers() {
  const key = readKey();
  return key ? { Authorization: "Bearer " + key } : {};
}

function address(path) {
  return new URL("../" + path, import.meta.url);
}

function textOfError(body) {
  const error = body?.error ?? body;
  const message = typeof error === "string" ? error : error?.message;
  return typeof message === "string" && message !== "" ? message : null;
}

async function errorOf(response) {
  let message = null;
  try {
    message = textOfError(JSON.parse(await response.text()));
  } catch {
    // No JSON, as from a proxy: the status says it.
  }
  const retryAfter = parseInt(response.headers.get("Retry-After") ?? "", 10) || 0;
  message ??= `The server answered with status ${response.status} ${response.statusText}`.trim() + ".";
  return new ServerError(message, { status: response.status, retryAfter });
}

async function request(path, options) {
  let response;
  try {
    response = await fetch(address(path), { cache: "no-store", redirect: "error", ...options });
  } catch (error) {
    if (options.signal.aborted) throw error;
    throw new ServerError("The server cannot be reached. Is it still running?");
  }
  if (!response.ok) throw await errorOf(response);
  return response;
}

export async function getJson(path) {
  try {
    const response = await request(path, { headers: headers(), signal: AbortSignal.timeout(kAnswerMs) });
    return await response.json();
  } catch (error) {
    if (error instanceof ServerError) throw error;
    if (error.name !== "TimeoutError") throw new ServerError("The server's answer is not JSON.", { status: 200 });
    throw new ServerError(`The server did not answer in ${kAnswerMs / 1000} seconds.`);
  }
}

// Returns the ids of the server's models.
export async function getModels() {
  const { data } = await getJson("v1/models");
  if (!Array.isArray(data)) throw new ServerError("The server's list of models has no \"data\".");
  return data.map((model) => model?.id).filter((id) => typeof id === "string" && id !== "");
}

// Sends a chat request and calls `onPiece` for every piece of the answer: {content, reasoning},
// either may be "". Returns {end, usage}. Throws ServerError, or AbortError after `signal`.
export async function streamChat(body, signal, { onOpen, onPiece }) {
  const response = await request("v1/chat/completions", {
    method: "POST", body: JSON.stringify(body), signal,
    headers: { ...headers(), "Content-Type": "application/json", Accept: "text/event-stream" },
  });
  onOpen();
  const result = { end: "", usage: null, isDone: false };
  const parser = new EventStreamParser();
  const decoder = new TextDecoder();
  const reader = response.body.getReader();
  try {
    while (!result.isDone) {
      const { done, value } = await reader.read();
      for (const event of parser.push(decoder.decode(value, { stream: !done }))) takeEvent(event, result, onPiece);
      if (done) break;
    }
  } catch (error) {
    if (signal.aborted || error instanceof ServerError) throw error;
    throw new ServerError("The connection to the server broke before the answer was complete.");
  } finally {
    reader.cancel().catch(() => {});  // it may have failed before, which is no news
  }
  if (!result.isDone && result.end === "") {
    throw new ServerError("The server ended the connection before the answer was complete.");
  }
  return result;
}

function takeEvent({ type, data }, result, onPiece) {
  if (result.isDone) return;
  if (data === "[DONE]") {
    result.isDone = true;
    return;
  }
  let chunk;
  try {
    chunk = JSON.parse(data);
  } catch {
    throw new ServerError("The server sent an event that is not JSON.");
  }
  if (type === "error" || chunk?.error) throw new ServerError(textOfError(chunk) ?? "The server reported an error.");
  if (chunk?.usage) result.usage = chunk.usage;
  const choice = chunk?.choices?.[0];
  if (!choice) return;
  const text = (value) => typeof value === "string" ? value : "";
  const content = text(choice.delta?.content);
  const reasoning = text(choice.delta?.reasoning_content);
  if (content || reasoning) onPiece({ content, reasoning });
  if (typeof choice.finish_reason === "string") result.end = choice.finish_reason;
}

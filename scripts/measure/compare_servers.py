#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Sets `qsf serve` beside llama-server: the same shape, the same load, in turns.

    compare_servers.py MODEL.qsf --peer FOLDER --peer-model FILE.gguf [--bin build/release/bin]
                       [--clients 1,4,16,64] [--requests 6,12,48,64] [--rounds 3]
                       [--shares 0.5,0.8,1,1.2] [--open-requests 40] [--threads 2]
                       [--prompt 256] [--generate 128] [--kv-unified] [--json FILE]

FOLDER has llama-server and llama-bench (default: the environment variable QSF_LLAMA_CPP). For each
number of clients both servers start, and closed loops of both alternate; in the turns of one client
`qsf bench` and llama-bench compute a request's tokens too, which gives the ratio of the engines and
what a server adds. At last an open loop with random arrivals (Poisson), at --shares of the most
requests a second that our closed loops reached; the peer gets the same rates. Prompts are random
tokens, unshared; answers have a fixed length at temperature 0.

Figures are medians of the rounds; times to first text and gaps are those of the median round.
Exit status: 0, 1 when a request failed, 2 when something is missing.
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys

import serve_load
from markdown_tables import table
from measuring_script import exit_status, missing_files, require
from scored_models import ROOT, Failed
from server_process import Server

MAX_TEXTS = 255  # of `qsf serve`; further requests wait


def say(text):
    print(f"compare_servers: {text}", file=sys.stderr, flush=True)


def numbers(text, kind=int):
    return [kind(part) for part in text.split(",")]


def parse():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("model", metavar="MODEL.qsf")
    add("--peer", metavar="FOLDER", default=os.environ.get("QSF_LLAMA_CPP", ""))
    add("--peer-model", metavar="FILE.gguf", required=True)
    add("--bin", metavar="FOLDER", default=os.path.join(ROOT, "build", "release", "bin"))
    add("--clients", type=numbers, default=[1, 4, 16, 64])
    add("--requests", type=numbers, default=[6, 12, 48, 64], help="of a round, for each of these")
    add("--rounds", type=int, default=3)
    add("--shares", type=lambda text: numbers(text, float), default=[0.5, 0.8, 1.0, 1.2])
    add("--open-requests", type=int, default=40, help="0: no open loop")
    add("--threads", type=int, default=2)
    add("--prompt", type=int, default=256, metavar="TOKENS")
    add("--generate", type=int, default=128, metavar="TOKENS")
    add("--vocabulary", type=int, default=32000)
    add("--kv-unified", action="store_true", help="the peer shares its context between slots")
    add("--json", metavar="FILE")
    return parser.parse_args()


class Comparison:
    def __init__(self, arguments):
        self.args = arguments
        self.rng = random.Random(1)
        self.failed = 0
        self.bench = {"qsf": [], "peer": []}  # seconds of one request's tokens

    def commands(self, n_texts):
        """Returns the command of each server for `n_texts` texts at a time."""
        args = self.args
        positions = n_texts * (args.prompt + args.generate + 64)
        context = max(512, 2 * (args.prompt + args.generate))
        threads = ["-t", str(args.threads)]
        ours = [os.path.join(args.bin, "qsf-serve"), args.model, *threads, "-c", str(context),
                "--texts", str(min(n_texts, MAX_TEXTS)), "--kv-positions", str(positions),
                "--queue", "1024", "--max-connections", "1024", "--max-wait", "3600",
                "--no-prefix-cache", "--quiet"]
        peer = [os.path.join(args.peer, "llama-server"), "-m", args.peer_model, *threads,
                "-tb", str(args.threads), "--parallel", str(n_texts), "-c",
                str(n_texts * context), "--no-webui", "-ngl", "0"]
        peer.append("--kv-unified" if args.kv_unified else "--no-kv-unified")
        return [("qsf", ours), ("peer", peer)]

    def load(self, server, n_requests, **loop):
        args = self.args
        prompts = serve_load.make_prompts(self.rng, n_requests, args.prompt, args.vocabulary)
        bodies = [serve_load.make_body(prompt, args.generate) for prompt in prompts]
        measured = serve_load.load(server.url + "/v1/completions", bodies, **loop)
        expected = n_requests * args.generate
        if measured["failed"] or measured["generated_tokens"] != expected:
            self.failed += 1
            say(f"{measured['failed']} requests failed, {measured['generated_tokens']} tokens "
                f"instead of {expected}: {measured['errors']}")
        return measured

    def in_turns(self, n_texts, n_requests, rounds, **loop):
        """Returns the runs of each server, which alternate."""
        runs = {"qsf": [], "peer": []}
        servers = [(name, Server(command)) for name, command in self.commands(n_texts)]
        try:
            for _, server in servers:
                self.load(server, min(2, n_texts), n_clients=2)  # to warm up
            for turn in range(rounds):
                if loop.get("n_clients") == 1:
                    self.run_benchmarks()
                for name, server in servers if turn % 2 == 0 else servers[::-1]:
                    runs[name].append(self.load(server, n_requests, **loop))
                    say(f"{name}, {loop}: {runs[name][-1]['tokens_per_second']:.1f} tokens/s")
        finally:
            for _, server in servers:
                server.end()
        return runs

    def run_benchmarks(self):
        """Takes the seconds of one request's tokens by each engine's own benchmark."""
        args = self.args
        threads = str(args.threads)
        ours = [os.path.join(args.bin, "qsf-bench"), args.model, "--json", "--no-probe", "-t", threads,
                "-r", "3"]
        seconds = 0.0
        for lengths in (["-p", str(args.prompt), "-n", "0"],
                        ["-p", "0", "-n", str(args.generate), "-d", str(args.prompt)]):
            tests = json.loads(self.output([*ours, *lengths]))["tests"]
            seconds += statistics.median(tests[0]["run_seconds"])
        self.bench["qsf"].append(seconds)
        peer = json.loads(self.output([
            os.path.join(args.peer, "llama-bench"), "-m", args.peer_model, "-t", threads, "-pg",
            f"{args.prompt},{args.generate}", "-p", "0", "-n", "0", "-r", "3", "-ngl", "0", "-o",
            "json"]))
        self.bench["peer"].append((args.prompt + args.generate) / statistics.median(peer[0]["samples_ts"]))
        say(f"one request by the benchmarks: {seconds:.3f} s, peer {self.bench['peer'][-1]:.3f} s")

    @staticmethod
    def output(command):
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              check=False)
        if done.returncode != 0:
            raise Failed(f"{' '.join(command)}: exit status {done.returncode}\n{done.stderr[-500:]}")
        return done.stdout

    def run(self):
        args = self.args
        closed = {}
        for n_clients, n_requests in zip(args.clients, args.requests):
            closed[n_clients] = self.in_turns(n_clients, n_requests, args.rounds,
                                              n_clients=n_clients)
        opened = {}
        if args.open_requests:
            peak = max(median_of(runs["qsf"])["requests_per_second"] for runs in closed.values())
            for share in args.shares:
                opened[share] = self.in_turns(min(16, max(args.clients)), args.open_requests, 1,
                                              rate=share * peak)
        if args.json:
            with open(args.json, "w", encoding="utf-8") as file:
                json.dump({"bench": self.bench, "closed": closed, "open": opened}, file, indent=1)
        print_tables(self.bench, closed, opened)
        return 1 if self.failed else 0


def median_of(runs):
    ordered = sorted(runs, key=lambda run: run["tokens_per_second"])
    return ordered[len(ordered) // 2]


def three(percentiles, scale=1.0, digits=2):
    return ", ".join("-" if value is None else f"{scale * value:.{digits}f}"
                     for value in percentiles.values())


def cells(run):
    return [f"{run['tokens_per_second']:.1f}", three(run["time_to_first_text"]),
            three(run["gap"], 1000.0, 0), f"{run['goodput_per_second']:.2f}"]


def print_tables(bench, closed, opened):
    head = ["server", "tokens/s", "first text, s", "gap, ms", "goodput/s"]
    rows = []
    for n_clients, runs in closed.items():
        ours, peer = median_of(runs["qsf"]), median_of(runs["peer"])
        ratio = ours["tokens_per_second"] / peer["tokens_per_second"]
        if n_clients == 1:
            seconds, by_bench = (statistics.median(values) for values in (
                [run["seconds"] / run["requests"] for run in runs["qsf"]], bench["qsf"]))
            by_peer = statistics.median(bench["peer"])
            print(f"one request: qsf bench {by_bench:.3f} s, llama-bench {by_peer:.3f} s, ratio "
                  f"{by_peer / by_bench:.2f}; qsf serve {seconds:.3f} s, "
                  f"{seconds / by_bench - 1:+.1%} to the benchmark")
        rows += [[str(n_clients), "qsf", *cells(ours), f"{ratio:.2f}"],
                 [str(n_clients), "peer", *cells(peer), ""]]
    print(table(["clients", *head, "ratio"], rows))
    rows = [[f"{share:.0%}", name, *cells(runs[name][0])]
            for share, runs in opened.items() for name in ("qsf", "peer")]
    if rows:
        print(table(["of the peak", *head], rows))


def main():
    args = parse()
    require(missing_files([(args.model, "MODEL.qsf"), (args.peer_model, "--peer-model"),
                           *((os.path.join(args.peer, program), "--peer, QSF_LLAMA_CPP")
                             for program in ("llama-server", "llama-bench")),
                           *((os.path.join(args.bin, program), "--bin")
                             for program in ("qsf-serve", "qsf-bench"))]))
    return Comparison(args).run()


if __name__ == "__main__":
    sys.exit(exit_status("compare_servers", main))

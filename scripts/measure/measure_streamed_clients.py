#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Measures what clients gain together where every pass reads the weights from the disk.

    measure_streamed_clients.py MODEL.qsf --budget MB [--disk-rate 1000000000]
                                [--bin build/release/bin] [--clients 1,16] [--rounds 1]
                                [--prompt 256] [--generate 128] [--kv-type 8] [--threads 2]

Starts `qsf serve` in a budget, its reads of the disk held to a rate by the kernel, and loads it by
that many clients, each with one request at a time. Prints tokens/s, times to first text, gaps, the
share of the disk's rate and the gain over the first number of clients. Needs root.
"""

import argparse
import json
import os
import random
import re
import sys
import urllib.request

import serve_load
from compare_servers import cells, median_of, numbers, say
from control_group import NoControlGroup
from disk_group import DiskGroup
from markdown_tables import table
from measuring_script import exit_status, missing_files, require
from scored_models import ROOT, Failed
from server_process import Server


def parse():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("model", metavar="MODEL.qsf")
    add("--budget", type=int, required=True, metavar="MB")
    add("--disk-rate", type=int, default=1_000_000_000, metavar="BYTES")
    add("--bin", metavar="FOLDER", default=os.path.join(ROOT, "build", "release", "bin"))
    add("--clients", type=numbers, default=[1, 16])
    add("--rounds", type=int, default=1)
    add("--prompt", type=int, default=256, metavar="TOKENS")
    add("--generate", type=int, default=128, metavar="TOKENS")
    add("--vocabulary", type=int, default=32000)
    add("--kv-type", default="8")
    add("--threads", type=int, default=2)
    return parser.parse_args()


def bytes_read(url):
    with urllib.request.urlopen(url + "/metrics") as answer:
        found = re.search(r"^qsf_weight_bytes_read_total (\S+)", answer.read().decode(), re.M)
    if not found:
        raise Failed("the server's metrics lack qsf_weight_bytes_read_total")
    return float(found[1])


def load(args, server, rng, n_clients):
    prompts = serve_load.make_prompts(rng, n_clients, args.prompt, args.vocabulary)
    bodies = [serve_load.make_body(prompt, args.generate) for prompt in prompts]
    before = bytes_read(server.url)
    run = serve_load.load(server.url + "/v1/completions", bodies, n_clients)
    if run["failed"]:
        raise Failed(f"{run['failed']} requests failed: {run['errors']}")
    run["bytes_per_second"] = (bytes_read(server.url) - before) / run["seconds"]
    say(f"{n_clients} clients: {json.dumps(run)}")
    return run


def run_all(args):
    most = max(args.clients)
    length = args.prompt + args.generate + 16
    command = [os.path.join(args.bin, "qsf-serve"), args.model, "--ram-budget", str(args.budget),
               "-t", str(args.threads), "-c", str(length), "--texts", str(most), "--kv-positions",
               str(most * length), "--kv-type", args.kv_type, "--no-prefix-cache", "--max-wait",
               "3600", "--quiet"]
    rng = random.Random(1)
    with DiskGroup(args.model, args.disk_rate) as group, Server([*group.wrapper(), *command]) as server:
        runs = {n: [] for n in args.clients}
        for _ in range(args.rounds):
            for n_clients in args.clients:
                runs[n_clients].append(load(args, server, rng, n_clients))
    first = median_of(runs[args.clients[0]])["tokens_per_second"]
    rows = []
    for n_clients, of_n in runs.items():
        run = median_of(of_n)
        rows.append([str(n_clients), *cells(run), f"{run['bytes_per_second'] / args.disk_rate:.0%}",
                     f"{run['tokens_per_second'] / first:.1f}"])
    print(table(["clients", "tokens/s", "first text, s", "gap, ms", "goodput/s", "of the disk",
                 "of the first"], rows))
    return 0


def main():
    args = parse()
    require(missing_files([(args.model, "MODEL.qsf"),
                           (os.path.join(args.bin, "qsf-serve"), "--bin")]))
    try:
        return run_all(args)
    except NoControlGroup as error:
        raise Failed(str(error)) from error


if __name__ == "__main__":
    sys.exit(exit_status("measure_streamed_clients", main))

#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""qsf-run on GGUF files and folders: converted once, into a cache that nothing can leave half-written.

Usage: qsf_run_gguf_test.py BIN_DIR SOURCE_DIR [unittest arguments]
"""

import os
import resource
import shutil
import subprocess
import sys
import tempfile
import unittest

BIN_DIR, SOURCE_DIR = sys.argv[1:3]
RUN = os.path.join(BIN_DIR, "qsf-run")
CONVERT = os.path.join(BIN_DIR, "qsf-convert")
QSF = os.path.join(BIN_DIR, "qsf")
MODEL = os.path.join(SOURCE_DIR, "testdata", "gguf", "llama_gqa_tied.gguf")
PARTS = os.path.join(SOURCE_DIR, "testdata", "gguf", "split")
ARGUMENTS = ["--prompt", "t5 t6", "--max-tokens", "12", "--temperature", "0"]
TIMEOUT_S = 120


class GgufCase(unittest.TestCase):
    def setUp(self):
        self.scratch = tempfile.TemporaryDirectory()
        self.model = self.path("my model.gguf")
        shutil.copy(MODEL, self.model)
        self.folder = self.path("cache/qsf/converted")

    def tearDown(self):
        self.scratch.cleanup()

    def path(self, name):
        return os.path.join(self.scratch.name, name)

    def environment(self, **changes):
        env = {**os.environ, "XDG_CACHE_HOME": self.path("cache")}
        for name, value in changes.items():
            env.pop(name, None)
            if value is not None:
                env[name] = value
        return env

    def call(self, model, *arguments, tool=RUN, env=None, **keywords):
        done = subprocess.run([tool, model, *ARGUMENTS, *arguments], capture_output=True,
                              timeout=TIMEOUT_S, stdin=subprocess.DEVNULL,
                              env=env or self.environment(), **keywords)
        return done.returncode, done.stdout, done.stderr.decode()

    def refused(self, word, model=None, **keywords):
        code, out, err = self.call(model or self.model, **keywords)
        self.assertEqual((code, out), (1, b""), err)
        self.assertIn(word, err)
        self.assertEqual(self.cached(), [])

    def cached(self):
        names = os.listdir(self.folder) if os.path.isdir(self.folder) else []
        return sorted(name for name in names if name != "lock" and not name.endswith(".source"))

    def test_a_model_is_converted_once_and_runs_as_its_conversion_does(self):
        converted = self.path("m.qsf")
        subprocess.run([CONVERT, "--quiet", self.model, converted], check=True)
        expected = self.call(converted)[1]
        code, out, err = self.call(self.model)
        self.assertEqual(code, 0, err)
        self.assertIn("converting it once", err)
        self.assertEqual(out, expected)
        self.assertEqual(len(self.cached()), 1)
        before = os.stat(os.path.join(self.folder, self.cached()[0]))
        code, out, err = self.call(self.model, "--ram-budget", "256")
        self.assertEqual((code, out), (0, expected), err)
        self.assertNotIn("converting", err)
        after = os.stat(os.path.join(self.folder, self.cached()[0]))
        self.assertEqual(before.st_ino, after.st_ino)

    def test_parts_of_llama_cpp_convert_to_the_same_bytes(self):
        def converted(model):
            out = self.path("m.qsf")
            subprocess.run([CONVERT, "--quiet", model, out], check=True)
            with open(out, "rb") as file:
                return file.read()
        whole = converted(MODEL)
        for part in range(1, 5):
            self.assertEqual(converted(os.path.join(PARTS, f"llama_gqa_tied-{part:05}-of-00004.gguf")), whole)

    def test_quiet_says_nothing(self):
        code, _, err = self.call(self.model, "--quiet")
        self.assertEqual((code, err), (0, ""))

    def test_a_moved_file_is_the_same_and_a_changed_one_is_not(self):
        self.assertEqual(self.call(self.model)[0], 0)
        os.makedirs(self.path("sub"))
        other = self.path("sub/another name.gguf")
        os.rename(self.model, other)
        code, _, err = self.call(other)
        self.assertEqual(code, 0, err)
        self.assertNotIn("converting", err)
        self.assertEqual(len(self.cached()), 1)
        os.utime(other, (1, 1))
        code, _, err = self.call(other)
        self.assertEqual(code, 0, err)
        self.assertIn("converting it once", err)
        self.assertEqual(len(self.cached()), 2)

    def test_a_link_is_the_file_that_it_leads_to(self):
        self.assertEqual(self.call(self.model)[0], 0)
        os.symlink(self.model, self.path("link.gguf"))
        code, _, err = self.call(self.path("link.gguf"))
        self.assertEqual(code, 0, err)
        self.assertNotIn("converting", err)

    def test_a_name_without_an_ending_is_no_hindrance(self):
        # As stores that name files after their content have them.
        expected = self.call(self.model)[1]
        os.rename(self.model, self.path("sha256-0123"))
        self.assertEqual(self.call(self.path("sha256-0123"))[:2], (0, expected))

    def test_a_damaged_conversion_says_how_to_go_on(self):
        expected = self.call(self.model)[1]
        converted = os.path.join(self.folder, self.cached()[0])
        os.truncate(converted, 1000)
        code, out, err = self.call(self.model)
        self.assertEqual((code, out), (1, b""))
        self.assertIn(f"remove {converted}", err)
        os.remove(converted)
        self.assertEqual(self.call(self.model)[:2], (0, expected))

    def test_what_a_killed_converter_left_is_removed(self):
        self.assertEqual(self.call(self.model)[0], 0)
        ended = subprocess.Popen([CONVERT, "--version"], stdout=subprocess.DEVNULL)
        ended.wait()
        kept = f"other-0-0.qsf.tmp-{os.getpid()}-0"
        for name in (f"other-0-0.qsf.tmp-{ended.pid}-0", kept):
            with open(os.path.join(self.folder, name), "wb") as file:
                file.write(b"half a model")
        # Nothing to convert, nothing to tidy: another process may be at it.
        self.assertEqual(self.call(self.model)[0], 0)
        self.assertEqual(len(self.cached()), 3)
        os.utime(self.model, (1, 1))
        self.assertEqual(self.call(self.model)[0], 0)
        self.assertEqual([name for name in self.cached() if "tmp" in name], [kept])

    def test_two_at_once_do_not_harm_each_other(self):
        runs = [subprocess.Popen([RUN, self.model, *ARGUMENTS], stdout=subprocess.PIPE,
                                 stderr=subprocess.PIPE, env=self.environment()) for _ in range(4)]
        ended = [run.communicate(timeout=TIMEOUT_S) for run in runs]
        self.assertEqual([run.returncode for run in runs], [0] * 4, ended)
        self.assertEqual(len({out for out, _ in ended}), 1)
        self.assertEqual(sum(b"converting it once" in err for _, err in ended), 1)
        self.assertEqual(len(self.cached()), 1)

    def test_a_full_disk_leaves_nothing(self):
        def limit():
            resource.setrlimit(resource.RLIMIT_FSIZE, (20000, 20000))
        self.refused("could not be converted", preexec_fn=limit)
        self.assertEqual(self.call(self.model)[0], 0)

    def test_a_disk_without_room_is_refused_before_it_fills(self):
        """A disk of 64 KB, in a name space of its own."""
        disk = self.path("cache")
        os.mkdir(disk)
        mount = "mount -t tmpfs -o size=64k none \"$1\" && shift && \"$@\"; code=$?; " \
                "find {} -name '*.qsf*' >&2; exit $code".format(disk)
        spaced = ["unshare", "--mount", "--map-root-user", "sh", "-c", mount, "sh", disk]
        if shutil.which("unshare") is None or subprocess.run(
                [*spaced, "true"], capture_output=True).returncode != 0:
            self.skipTest("no file system may be mounted here, to have a small one")
        done = subprocess.run([*spaced, RUN, self.model, *ARGUMENTS], capture_output=True,
                              timeout=TIMEOUT_S, stdin=subprocess.DEVNULL, env=self.environment())
        err = done.stderr.decode()
        self.assertEqual((done.returncode, done.stdout), (1, b""), err)
        self.assertRegex(err, r"the file takes 0\.\d MB, and .*/cache/qsf/converted has 0\.1 MB free; "
                              r"make room there, or write to another disk")
        self.assertIn("XDG_CACHE_HOME", err)
        self.assertFalse(err.splitlines()[-1].endswith(".qsf"), err)  # nothing was left there

    def test_the_program_needs_nothing_beside_it(self):
        alone = self.path("qsf-run")
        shutil.copy(RUN, alone)
        code, out, err = self.call(self.model, tool=alone)
        self.assertEqual(code, 0, err)
        self.assertTrue(out)

    def test_a_folder_is_converted_once(self):
        folder = self.path("tales")
        shutil.copytree(os.path.join(SOURCE_DIR, "models", "tales-5M"), folder)
        code, out, err = self.call(folder)
        self.assertEqual(code, 0, err)
        self.assertIn("converting it once", err)
        code, again, err = self.call(folder + "/")
        self.assertEqual((code, again), (0, out), err)
        self.assertNotIn("converting", err)
        self.assertEqual(len(self.cached()), 1)
        os.utime(os.path.join(folder, "config.json"), (1, 1))
        self.assertIn("converting it once", self.call(folder)[2])

    def cache(self, *arguments):
        done = subprocess.run([QSF, "cache", *arguments], capture_output=True, text=True, timeout=TIMEOUT_S,
                              env=self.environment(), check=False)
        return done.returncode, done.stdout, done.stderr

    def test_the_cache_is_listed_and_cleared(self):
        self.assertEqual(self.cache()[0], 0)
        self.assertEqual(self.call(self.model)[0], 0)
        other = self.path("other.gguf")
        shutil.copy(MODEL, other)
        self.assertEqual(self.call(other)[0], 0)
        code, out, err = self.cache()
        self.assertEqual((code, err), (0, ""))
        lines = out.split("\n")
        self.assertRegex(lines[1], r"^ +\d+\.\d MB  \d{4}-\d\d-\d\d \d\d:\d\d  /.*\.gguf$")
        self.assertRegex(lines[3], r"MB  of at most [\d.]+ MB in .*/cache/qsf/converted$")
        self.assertEqual(self.cache("--clear", "--model", "absent")[0], 1)
        self.assertEqual(self.cache("--clear", "--model", other)[0], 0)
        self.assertEqual(len(self.cached()), 1)
        self.assertEqual(self.cache("--clear")[::2], (0, ""))
        self.assertEqual(self.cached(), [])

    def test_the_model_used_longest_ago_is_removed_first(self):
        models = []
        for i in range(3):
            models.append(self.path(f"m{i}.gguf"))
            shutil.copy(MODEL, models[i])
        for i in range(2):
            self.assertEqual(self.call(models[i])[0], 0)
            entry = [name for name in self.cached() if name.startswith(f"m{i}-")][0]
            os.utime(os.path.join(self.folder, entry + ".source"), (1000 - i, 1000 - i))
        size = os.stat(os.path.join(self.folder, self.cached()[0])).st_size
        limit = f"{size * 5 // 2 // 1000}k"  # room for two
        self.assertEqual(self.call(models[2], "--cache-size", limit)[0], 0)
        self.assertEqual([name[:2] for name in self.cached()], ["m0", "m2"])
        # The new one stays, however small the limit is.
        os.utime(models[0], (1, 1))
        env = self.environment(QSF_CACHE_SIZE="1k")
        self.assertEqual(self.call(models[0], env=env)[0], 0)
        self.assertEqual([name[:2] for name in self.cached()], ["m0"])

    def test_a_model_in_use_is_not_removed(self):
        self.assertEqual(self.call(self.model)[0], 0)
        chat = subprocess.Popen([QSF, "chat", self.model, "--quiet"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                stderr=subprocess.DEVNULL, env=self.environment())
        chat.stdin.write(b"hello\n")
        chat.stdin.flush()
        self.assertTrue(chat.stdout.read(1))
        code, _, err = self.cache("--clear")
        self.assertEqual(code, 1)
        self.assertIn("in use, not removed", err)
        self.assertEqual(len(self.cached()), 1)
        chat.stdin.close()
        chat.stdout.read()
        chat.stdout.close()
        chat.wait(timeout=TIMEOUT_S)
        self.assertEqual(self.cache("--clear")[0], 0)
        self.assertEqual(self.cached(), [])

    def test_another_folder_for_the_cache(self):
        env = self.environment(XDG_CACHE_HOME=None, HOME=None)
        code, _, err = self.call(self.model, "--cache-dir", self.path("elsewhere"), env=env)
        self.assertEqual(code, 0, err)
        self.assertTrue(any(name.endswith(".qsf") for name in os.listdir(self.path("elsewhere"))))

    def test_a_place_for_the_cache_is_needed(self):
        env = self.environment(XDG_CACHE_HOME=None, HOME=None)
        self.refused("XDG_CACHE_HOME", env=env)
        with open(self.path("file"), "wb"):
            pass
        self.refused("cannot be made", env=self.environment(XDG_CACHE_HOME=self.path("file")))
        self.refused("--cache-dir FOLDER", env=self.environment(XDG_CACHE_HOME=self.path("file")))
        code, _, err = self.call(self.model, env=self.environment(
            XDG_CACHE_HOME=None, HOME=self.path("home")))
        self.assertEqual(code, 0, err)
        self.assertEqual(len(os.listdir(self.path("home/.cache/qsf/converted"))), 3)

    def test_files_that_are_no_models(self):
        self.refused("no such file", model=self.path("absent.gguf"))
        with open(self.model, "rb") as file:
            content = file.read()
        for n_bytes in (0, 3, 100, 5000, len(content) - 1):
            with open(self.path("cut.gguf"), "wb") as file:
                file.write(content[:n_bytes])
            self.refused("could not be converted", model=self.path("cut.gguf"))
        os.mkdir(self.path("folder.gguf"))
        self.refused("folder", model=self.path("folder.gguf"))


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])

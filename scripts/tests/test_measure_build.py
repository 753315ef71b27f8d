#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Tests of measure_build with a cmake and a repository that take no time."""

import contextlib
import io
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

import rooms

measure_build = rooms.load("measure", "measure_build")

# Stands in for cmake: configures with -S, builds with --build, and takes some CPU time for it.
CMAKE = """#!{python}
import json, os, sys
if {fails}: sys.exit(3)
sum(range(3_000_000))
assert os.environ["CCACHE_DISABLE"] == "1"
if "--build" in sys.argv:
    folder = sys.argv[sys.argv.index("--build") + 1]
    os.makedirs(folder + "/bin")
    open(folder + "/bin/qsf", "w").write("12345")
else:
    folder = sys.argv[sys.argv.index("-B") + 1]
    os.makedirs(folder)
    json.dump([1, 2, 3], open(folder + "/compile_commands.json", "w"))
    open(folder + "/CMakeCache.txt", "w").write("CMAKE_CXX_COMPILER:FILEPATH={compiler}\\n")
"""


class MeasureBuild(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.root = self.folder / "tree"
        for path, text in (("src/a.cc", ""), ("src/a.h", ""), ("src/a_test.cc", ""), ("src/testing/b.cc", ""),
                           ("fuzz/c.cc", ""), ("README.md", "two words\n"), ("docs/a.md", "three more words\n"),
                           ("scripts/lib.sh", "build_packages=() test_packages=() optional_test_packages=() "
                            "model_packages=()\ninstall_missing() { sleep 0.3; }\ninstall_if_offered() { :; }\n"),
                           ("scripts/models/get_models", "#!/bin/sh\nexit 1\n"),
                           ("quickstart", "#!/bin/sh\ntest \"$CCACHE_DISABLE\" = 1 && test -f README.md\n"),
                           ("test", "#!/bin/sh\nexit 4\n")):
            (self.root / path).parent.mkdir(parents=True, exist_ok=True)
            (self.root / path).write_text(text)
            (self.root / path).chmod(0o755)
        for command in (("init", "--quiet"), ("add", "."),
                        ("-c", "user.name=a", "-c", "user.email=a@b", "commit", "--quiet", "-m", "a")):
            subprocess.run(["git", "-C", self.root, *command], check=True)
        (self.folder / "bin").mkdir()
        self.write_cmake(False)
        compiler = self.folder / "bin" / "c++"
        compiler.write_text("#!/bin/sh\necho 'fake c++ 1.2'\necho more\n")
        compiler.chmod(0o755)

    def write_cmake(self, fails):
        path = self.folder / "bin" / "cmake"
        path.write_text(CMAKE.format(python=sys.executable, fails=fails, compiler=self.folder / "bin" / "c++"))
        path.chmod(0o755)

    def run_main(self, *options):
        """Returns exit status, stdout and what --json wrote."""
        out, figures = io.StringIO(), self.folder / "figures.json"
        with mock.patch.object(measure_build, "ROOT", str(self.root)), contextlib.redirect_stdout(out), \
                open(os.devnull, "w") as err, contextlib.redirect_stderr(err), \
                mock.patch.dict(os.environ, PATH=f"{self.folder}/bin:{os.environ['PATH']}"), \
                mock.patch.object(sys, "argv", ["measure_build", "--scratch", str(self.folder), "--json", str(figures),
                                                *options]):
            status = measure_build.main()
        self.assertEqual(list(self.folder.glob("measure_build.*")), [])
        return status, out.getvalue(), json.loads(figures.read_text()) if figures.exists() else None

    def test_a_release_build(self):
        status, out, figures = self.run_main("-j", "3")
        self.assertEqual(status, 0)
        self.assertEqual({key: figures[key] for key in ("what", "translation_units", "bytes_of_qsf", "compiler",
                                                        "product_files", "words_of_documents")},
                         {"what": "release build", "translation_units": 3, "bytes_of_qsf": 5, "compiler": "fake c++ 1.2",
                          "product_files": 2, "words_of_documents": 5})
        self.assertGreater(figures["cpu_s"], 0)
        self.assertGreater(figures["elapsed_s"], 0)
        self.assertTrue(figures["cpu"] and figures["cores"] and figures["commit"])
        self.assertIn("words of documents: 5\n", out)

    def test_a_build_that_fails_gives_no_figures(self):
        self.write_cmake(True)
        self.assertEqual(self.run_main(), (1, "", None))

    def test_downloads_of_a_command_are_apart(self):
        status, _, figures = self.run_main("--quickstart")
        self.assertEqual((status, figures["what"]), (0, "./quickstart"))
        self.assertGreaterEqual(figures["downloads_s"], 0.3)
        self.assertLess(figures["elapsed_s"], 0.3)

    def test_a_command_that_fails_gives_no_figures(self):
        self.assertEqual(self.run_main("--test"), (1, "", None))

    def test_the_processor_has_a_name(self):
        path = self.folder / "cpuinfo"
        path.write_text("processor : 0\nmodel name\t: Some CPU\n")
        self.assertEqual(measure_build.cpu_name(path), "Some CPU")
        self.assertEqual(measure_build.cpu_name(self.folder / "none"), os.uname().machine)


if __name__ == "__main__":
    unittest.main()

# SPDX-License-Identifier: MIT
"""Tests of verify_release in a repository whose build_wheels writes text."""

import hashlib
import os
import shutil
import subprocess
import tempfile
import unittest

import rooms

WHEEL = "qsf-1-py3-none-manylinux_2_28_x86_64.whl"
OTHER_WHEEL = "qsf-1-py3-none-manylinux_2_28_aarch64.whl"
BUILD = f"""#!/usr/bin/env bash
mkdir -p "$2"
[ "$4" = x86_64 ] && name={WHEEL} || name={OTHER_WHEEL}
printf 'built %s' "${{CCACHE_DISABLE:-with ccache}}" >"$2/$name"
"""
PACKAGE = "qsf_1-1_amd64.deb"
PACKAGES = f"""#!/usr/bin/env bash
mkdir -p "$2"
printf packages >"$2/{PACKAGE}"
"""
ZIP = "qsf-1-windows-x64.zip"
ZIPS = f"""#!/usr/bin/env bash
mkdir -p "$2"
printf zipped >"$2/{ZIP}"
"""
MINISIGN = """#!/usr/bin/env bash
grep -qx "signed by $(cat "$3")" "$5.minisig"
"""


class VerifyReleaseTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = os.path.join(folder.name, "repository")
        self.dist = os.path.join(folder.name, "dist")
        self.programs = os.path.join(folder.name, "bin")
        self.write("repository/scripts/package/build_wheels", BUILD)
        self.write("repository/scripts/package/make_packages", PACKAGES)
        self.write("repository/scripts/package/make_windows_zip", ZIPS)
        self.write("bin/minisign", MINISIGN)
        for name in ("verify_release", "lib.sh"):
            shutil.copy(os.path.join(rooms.SCRIPTS, name), os.path.join(self.root, "scripts"))
        for command in (["init", "-q"], ["add", "."],
                        ["-c", "user.name=n", "-c", "user.email=e@example.org", "commit", "-qm", "m"]):
            subprocess.run(["git", "-C", self.root, *command], check=True)
        self.write(f"dist/{WHEEL}", "built 1")
        self.sum_up()

    def write(self, path, text):
        path = os.path.join(os.path.dirname(self.root), path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="ascii") as file:
            file.write(text)
        os.chmod(path, 0o755)

    def sum_up(self):
        lines = []
        for name in sorted(os.listdir(self.dist)):
            if not name.startswith("SHA256SUMS"):
                with open(os.path.join(self.dist, name), "rb") as file:
                    lines.append(f"{hashlib.sha256(file.read()).hexdigest()}  {name}\n")
        self.write("dist/SHA256SUMS", "".join(lines))

    def verify(self, *options):
        """Returns (exit status, what was said)."""
        environment = dict(os.environ, PATH=self.programs + ":" + os.environ["PATH"])
        done = subprocess.run([os.path.join(self.root, "scripts", "verify_release"), *options, self.dist],
                              capture_output=True, text=True, check=False, env=environment)
        return done.returncode, done.stdout + done.stderr

    def test_what_the_commit_gives(self):
        status, said = self.verify()
        self.assertEqual(status, 0, said)
        self.assertIn("1 files have the bytes that this commit gives", said)
        self.assertIn("no signature was checked", said)

    def test_each_machine_has_a_build_of_its_own(self):
        self.write(f"dist/{OTHER_WHEEL}", "built 1")
        self.sum_up()
        status, said = self.verify()
        self.assertEqual(status, 0, said)
        self.assertIn("2 files have the bytes", said)

    def test_packages_are_built_where_there_are_some(self):
        self.write(f"dist/{PACKAGE}", "packages")
        self.sum_up()
        status, said = self.verify()
        self.assertEqual(status, 0, said)
        self.assertIn("2 files have the bytes", said)
        os.remove(os.path.join(self.dist, WHEEL))
        self.write(f"dist/{PACKAGE}", "others")
        self.sum_up()
        status, said = self.verify()
        self.assertEqual(status, 1)
        self.assertIn(f"{PACKAGE}: the build gives other bytes", said)

    def test_the_zip_for_windows_is_built_again(self):
        self.write(f"dist/{ZIP}", "zipped")
        self.sum_up()
        status, said = self.verify()
        self.assertEqual(status, 0, said)
        self.assertIn("2 files have the bytes", said)
        self.write(f"dist/{ZIP}", "others")
        self.sum_up()
        status, said = self.verify()
        self.assertEqual(status, 1)
        self.assertIn(f"{ZIP}: the build gives other bytes", said)

    def test_sums_are_of_all_files_but_signatures(self):
        self.write("dist/a name", "x")
        self.write("dist/SHA256SUMS.asc", "y")
        subprocess.run(["bash", "-c", f'source "{self.root}/scripts/lib.sh"; write_sums "{self.dist}"'], check=True)
        with open(os.path.join(self.dist, "SHA256SUMS"), encoding="ascii") as file:
            names = [line.split("  ")[1].strip() for line in file]
        self.assertEqual(names, ["a name", WHEEL])

    def test_other_bytes_with_their_sum(self):
        self.write(f"dist/{WHEEL}", "other")
        self.sum_up()
        status, said = self.verify()
        self.assertEqual(status, 1)
        self.assertIn("other bytes", said)
        self.assertEqual(self.verify("--no-rebuild")[0], 0)

    def test_other_bytes_than_their_sum(self):
        self.write(f"dist/{WHEEL}", "other")
        self.assertEqual(self.verify("--no-rebuild")[0], 1)

    def test_a_file_that_is_not_listed(self):
        self.write("dist/qsf-1.tar.gz", "x")
        status, said = self.verify("--no-rebuild")
        self.assertEqual(status, 1)
        self.assertIn("qsf-1.tar.gz is not in SHA256SUMS", said)

    def test_nothing_to_verify(self):
        os.remove(os.path.join(self.dist, "SHA256SUMS"))
        self.assertEqual(self.verify()[0], 1)
        os.remove(os.path.join(self.dist, WHEEL))
        self.write("dist/SHA256SUMS", "\n")
        self.assertEqual(self.verify()[0], 1)

    def test_no_file_that_is_built(self):
        os.remove(os.path.join(self.dist, WHEEL))
        self.write("dist/other.txt", "x")
        self.sum_up()
        status, said = self.verify()
        self.assertEqual(status, 1)
        self.assertIn("no file was built again", said)

    def test_signatures(self):
        key = os.path.join(self.dist, "..", "key.pub")
        self.write("key.pub", "me")
        self.assertEqual(self.verify("--no-rebuild", "--key", key)[0], 1)
        self.write("dist/SHA256SUMS.minisig", "signed by you\n")
        self.assertEqual(self.verify("--no-rebuild", "--key", key)[0], 1)
        self.write("dist/SHA256SUMS.minisig", "signed by me\n")
        status, said = self.verify("--no-rebuild", "--key", key)
        self.assertEqual(status, 0, said)
        self.assertIn("signed by", said)


if __name__ == "__main__":
    unittest.main()

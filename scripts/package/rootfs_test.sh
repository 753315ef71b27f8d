#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Test of the packages on a machine that has nothing: a fresh Debian root file system, in which apt
# installs the package, the bundled model speaks, and nothing is left after its removal; and an empty
# folder as root, not even with a C library, in which the static program speaks.
#
#   rootfs_test.sh RELEASE_BUILD
#
# Needs root and debootstrap, and a Debian mirror, which is the one apt uses here; the unpacked root
# file system is kept in build/rootfs for the next time. Ends with 77 and a reason where one of them
# is missing.
set -euo pipefail
[ $# -eq 1 ] || { echo "usage: rootfs_test.sh RELEASE_BUILD" >&2; exit 2; }
release=$(cd "$1" && pwd)
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
suite=bookworm
cache=build/rootfs/$suite-$(dpkg --print-architecture 2>/dev/null || echo none).tar
log=build/rootfs/test.log

skip() {
  echo "rootfs_test: $*"
  exit 77
}

fail() {
  echo "rootfs_test: $*" >&2
  [ ! -s "$log" ] || tail -n 20 "$log" >&2
  exit 1
}

[ "$(id -u)" -eq 0 ] || skip "needs root, for chroot"
command -v debootstrap >/dev/null || skip "debootstrap is not installed"
mkdir -p build/rootfs
scratch=$(mktemp -d "$PWD/build/rootfs/test.XXXXXX")
root=$scratch/root

remove_scratch() {
  # Also what debootstrap mounts, where it is stopped half-way.
  awk -v folder="$scratch/" 'index($2, folder) == 1 { print $2 }' /proc/mounts | sort -r | xargs -r umount
  rm -rf --one-file-system "$scratch"
}
trap remove_scratch EXIT
trap 'exit 1' INT TERM

# Runs a command whose output only a failure shows.
quietly() { "$@" >"$log" 2>&1 </dev/null; }
inside() { chroot "$root" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive "$@"; }

# Prints the address that apt has for Debian itself.
mirror() {
  apt-get indextargets --format '$(REPO_URI) $(RELEASE)' 'Created-By: Packages' 'Origin: Debian' "Codename: $suite" |
    awk '{ print $1; exit }'
}

if [ ! -f "$cache" ]; then
  address=$(mirror)
  [ -n "$address" ] || skip "apt here has no mirror of Debian $suite"
  if ! quietly debootstrap --variant=minbase "$suite" "$root" "$address"; then
    tail -n 3 "$log"
    skip "debootstrap could not make a Debian $suite here"
  fi
  rm -rf "$root"/var/cache/apt/archives/*.deb
  tar -C "$root" --numeric-owner -cf "$cache.partial" .
  mv "$cache.partial" "$cache"
  rm -rf --one-file-system "$root"
fi
mkdir "$root"
tar -C "$root" --numeric-owner -xf "$cache"
mount -t proc proc "$root/proc" || skip "may not mount proc, as in a container without that right"

packages=("$release"/packages/qsf_*.deb)
[ -f "${packages[0]}" ] || fail "no Debian package in $release/packages; run scripts/package/make_packages"
cp "${packages[0]}" "$root/qsf.deb"
# What dpkg and apt write about their own work is not the package's.
list_files() {
  (cd "$root" && find . -xdev \( -path ./proc -o -path ./tmp -o -path ./var/lib/dpkg -o -path ./var/lib/apt -o \
    -path ./var/log -o -path ./var/cache \) -prune -o -print | sort)
}
list_files >"$scratch/before.txt"
(cd "$root" && ls var/lib/dpkg/info | sort) >"$scratch/info_before.txt"

quietly inside apt-get install -y --no-install-recommends /qsf.deb || fail "apt-get cannot install the package"
tells_a_story() {
  local text
  text=$("$@" --prompt "Once upon a time" --max-tokens 20 --seed 7 2>"$log" </dev/null) && [ "${#text}" -gt 40 ]
}
tells_a_story inside qsf-run || fail "the packaged qsf-run fails with its bundled model"
for tool in qsf qsf-run qsf-convert qsf-inspect qsf-perplexity qsf-bench qsf-parity; do
  quietly inside "$tool" --version || fail "the packaged $tool --version fails"
  [ -s "$root/usr/share/man/man1/$tool.1.gz" ] || fail "$tool has no man page"
done
quietly inside qsf-inspect --verify /usr/share/qsf/models/tales-5M-4bit.qsf || fail "qsf-inspect refuses the bundled model"
list_files >"$scratch/installed.txt"
! cmp -s "$scratch/before.txt" "$scratch/installed.txt" || fail "the package installed no file"

quietly inside dpkg -r qsf || fail "dpkg -r fails"
quietly inside dpkg -P qsf || fail "dpkg -P fails"
list_files >"$scratch/after.txt"
(cd "$root" && ls var/lib/dpkg/info | sort) >"$scratch/info_after.txt"
diff "$scratch/before.txt" "$scratch/after.txt" >"$log" || fail "removing the package leaves these files, or takes some"
diff "$scratch/info_before.txt" "$scratch/info_after.txt" >"$log" || fail "dpkg still lists the package"
umount "$root/proc"

# No shell, no C library, no /proc: the program, its model and the kernel.
empty=$scratch/empty
mkdir -p "$empty"
tar -C "$empty" -xzf "$release"/packages/qsf-*.tar.gz --strip-components=1 --wildcards '*/bin/qsf' '*/bin/qsf-run' '*/share/qsf/models'
[ "$(find "$empty" -type f | wc -l)" -eq 2 ] || fail "the empty root holds more than the program and its model"
tells_a_story chroot "$empty" /bin/qsf-run || fail "the static qsf-run fails where there is nothing else"
echo "rootfs_test: installed, ran and removed in Debian $suite; the static qsf-run works alone"

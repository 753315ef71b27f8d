#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes which libraries are inside what we ship: a software bill of materials, and their licences.

    make_sbom.py --version VERSION --machine MACHINE --to FOLDER [--unpacked FOLDER]
                 [--system windows --built FOLDER]

Reads packaging/libraries.json: what is linked on Linux, or on another system. FOLDER gets
sboms/qsf.cdx.json (CycloneDX 1.6, which PEP 770 wants in a wheel's dist-info/sboms) and
libraries/PACKAGE.txt, what each Debian package says of its licence.
Versions are those of the packages installed for MACHINE (x86_64 or aarch64), or unpacked into
--unpacked by scripts/package/get_aarch64_libraries; headers are those of any machine. Where there is
no package, as on another system, its version and licence text are left out and a note says so. For
Windows, the libraries that scripts/package/build_libraries made in --built have the versions of
packaging/sources.txt. The date is SOURCE_DATE_EPOCH, and the same input gives the same bytes.
"""

import argparse
import datetime
import json
import os
import shutil
import subprocess
import sys
import uuid

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
LIBRARIES = os.path.join(ROOT, "packaging", "libraries.json")
SOURCES = os.path.join(ROOT, "packaging", "sources.txt")
DEBIAN_MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}


def unpacked_packages(folder):
    """Returns {name: (name, version, architecture)} of the packages in a folder, {} without one."""
    if not folder:
        return {}
    with open(os.path.join(folder, "packages.txt"), encoding="ascii") as file:
        return {line.split()[0]: tuple(line.split()) for line in file}


def installed_package(name, machine, headers_alone=False):
    """Returns (name, version, architecture) of the installed Debian package of a library for a
    machine, or None. A cross compiler's own libraries are packages of the building machine."""
    debian = DEBIAN_MACHINES.get(machine, machine)
    if not shutil.which("dpkg-query"):
        return None
    candidates = [f"{name}:{debian}", f"{name}-{debian}-cross", f"{name}:all"]
    if headers_alone:
        candidates.append(name)
    for candidate in candidates:
        done = subprocess.run(["dpkg-query", "-W", "-f=${db:Status-Status} ${Version} ${Architecture}", candidate],
                              capture_output=True, text=True, check=False)
        words = done.stdout.split()
        if done.returncode == 0 and words[:1] == ["installed"]:
            return candidate.split(":")[0], words[1], words[2]
    return None


def libraries_of(system):
    """Returns the entries of packaging/libraries.json that are linked on a system."""
    with open(LIBRARIES, encoding="utf-8") as file:
        return [library for library in json.load(file) if system in library.get("systems", [system])]


def built_package(name):
    """Returns (name, version, "source") of a Debian source package that build_libraries builds, or None."""
    with open(SOURCES, encoding="utf-8") as file:
        for line in file:
            words = line.split()
            if words[:1] == [name]:
                return name, words[1], "source"
    return None


def package_and_licence(library, options, unpacked):
    """Returns the package that a library is of, as installed_package() does, and the file of its licence."""
    if options.system == "windows" and "source" in library:
        return built_package(library["source"]), os.path.join(options.built, "licences", library["source"] + ".txt")
    name = library.get(options.system + "_package", library["package"])
    root = options.unpacked if name in unpacked else "/"
    package = unpacked.get(name) or installed_package(name, options.machine, library.get("headers_alone", False))
    return package, os.path.join(root, "usr/share/doc", package[0], "copyright") if package else ""


def component(library, package):
    """Returns the entry of a library; `package` is what installed_package() found."""
    entry = {"type": "library", "bom-ref": library["name"], "name": library["name"]}
    if package:
        name, version, architecture = package
        entry["version"] = version
        entry["purl"] = f"pkg:deb/debian/{name}@{version}?arch={architecture}".replace("+", "%2B")
    entry["licenses"] = [{"expression": library["licence"]}]
    entry["externalReferences"] = [{"type": "website", "url": library["site"]}]
    return entry


def bill(version, components, epoch):
    """Returns the bill of materials of QSF with these components, as a dictionary."""
    date = datetime.datetime.fromtimestamp(epoch, datetime.timezone.utc)
    content = {"bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1,
               "metadata": {"timestamp": date.strftime("%Y-%m-%dT%H:%M:%SZ"),
                            "component": {"type": "library", "bom-ref": "qsf", "name": "qsf", "version": version,
                                          "purl": f"pkg:generic/qsf@{version}", "licenses": [{"expression": "MIT"}]}},
               "components": components,
               "dependencies": [{"ref": "qsf", "dependsOn": [entry["bom-ref"] for entry in components]}]}
    name = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(content, sort_keys=True))
    return {**content, "serialNumber": f"urn:uuid:{name}"}


def main(arguments):
    parser = argparse.ArgumentParser(description="Write the bill of materials and the licences of the libraries inside.")
    parser.add_argument("--version", required=True)
    parser.add_argument("--machine", required=True)
    parser.add_argument("--unpacked")
    parser.add_argument("--to", required=True)
    parser.add_argument("--system", choices=("linux", "windows"), default="linux")
    parser.add_argument("--built", default="", help="what build_libraries made")
    options = parser.parse_args(arguments)
    epoch = os.environ.get("SOURCE_DATE_EPOCH", "")
    if not epoch.isdigit():
        print(f"make_sbom: SOURCE_DATE_EPOCH is '{epoch}', expected the seconds since 1970", file=sys.stderr)
        return 1
    folders = {name: os.path.join(options.to, name) for name in ("sboms", "libraries")}
    for folder in folders.values():
        shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(folder)
    components = []
    unpacked = unpacked_packages(options.unpacked)
    for library in libraries_of(options.system):
        package, licence = package_and_licence(library, options, unpacked)
        components.append(component(library, package))
        if library.get("headers_alone"):
            continue  # packaging/debian/copyright says all
        if os.path.exists(licence):
            shutil.copyfile(licence, os.path.join(folders["libraries"], library["name"] + ".txt"))
        else:
            print(f"make_sbom: no licence of {library['name']} here, and maybe no version: its package is missing")
    with open(os.path.join(folders["sboms"], "qsf.cdx.json"), "w", encoding="utf-8") as file:
        json.dump(bill(options.version, components, int(epoch)), file, indent=2, ensure_ascii=True)
        file.write("\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Writes Python wheels byte by byte the same for the same contents."""

import base64
import csv
import dataclasses
import hashlib
import io
import zipfile


@dataclasses.dataclass(frozen=True)
class File:
    name: str
    content: bytes
    executable: bool = False


@dataclasses.dataclass(frozen=True)
class Package:
    name: str      # as on PyPI: mgpu-run
    version: str
    tag: str       # py3-none-manylinux_2_34_x86_64
    summary: str
    description: str
    requires: tuple = ()
    python: str = ">=3.9"

    @property
    def stem(self):
        return f"{self.name.replace('-', '_')}-{self.version}"

    @property
    def file_name(self):
        return f"{self.stem}-{self.tag}.whl"

    def script(self, name, content):
        return File(f"{self.stem}.data/scripts/{name}", content, True)


def metadata(package):
    lines = ["Metadata-Version: 2.1", f"Name: {package.name}", f"Version: {package.version}",
             f"Summary: {package.summary}", "License: Apache-2.0",
             "Classifier: License :: OSI Approved :: Apache Software License",
             "Classifier: Operating System :: POSIX :: Linux",
             f"Requires-Python: {package.python}",
             *(f"Requires-Dist: {one}" for one in package.requires),
             "Description-Content-Type: text/markdown", "", package.description]
    return "\n".join(lines).encode()


def digest(content):
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()


def record(files, own_name):
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    for file in files:
        rows.writerow([file.name, f"sha256={digest(file.content)}", len(file.content)])
    rows.writerow([own_name, "", ""])
    return text.getvalue().encode()


def entry(name, executable, time):
    info = zipfile.ZipInfo(name, date_time=time)
    info.compress_type = zipfile.ZIP_DEFLATED
    info.create_system = 3  # Unix, so that the mode counts
    info.external_attr = (0o100755 if executable else 0o100644) << 16
    return info


def write(folder, package, files, licenses, time):
    """Writes the wheel into `folder` and returns its path. `time` is (year, ..., second)."""
    info = f"{package.stem}.dist-info"
    wheel = ("Wheel-Version: 1.0\nGenerator: mgpu\nRoot-Is-Purelib: false\n"
             f"Tag: {package.tag}\n")
    files = sorted(files, key=lambda file: file.name)
    files += [File(f"{info}/METADATA", metadata(package)), File(f"{info}/WHEEL", wheel.encode()),
              *(File(f"{info}/licenses/{name}", text) for name, text in licenses.items())]
    name = f"{info}/RECORD"
    files.append(File(name, record(files, name)))
    path = folder / package.file_name
    with zipfile.ZipFile(path, "w", compresslevel=9) as archive:
        for file in files:
            archive.writestr(entry(file.name, file.executable, time), file.content, compresslevel=9)
    return path

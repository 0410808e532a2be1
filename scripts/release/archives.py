"""Writes a .deb and .tar.gz archives that are the same for the same contents."""

import gzip
import hashlib
import io
import tarfile


def tar_bytes(files, seconds, root=""):
    """`files` are (name, content, mode); their folders are added."""
    text = io.BytesIO()
    with tarfile.open(fileobj=text, mode="w", format=tarfile.GNU_FORMAT) as archive:
        folders = set()
        for name, content, mode in sorted(files):
            path = root + name
            parts = path.split("/")[:-1]
            for depth in range(1, len(parts) + 1):
                folder = "/".join(parts[:depth])
                if folder in folders or folder == ".":
                    continue
                folders.add(folder)
                add(archive, folder, b"", 0o755, seconds, tarfile.DIRTYPE)
            add(archive, path, content, mode, seconds, tarfile.REGTYPE)
    return gzip.compress(text.getvalue(), 9, mtime=0)


def add(archive, name, content, mode, seconds, kind):
    info = tarfile.TarInfo(name)
    info.size, info.mode, info.mtime, info.type = len(content), mode, seconds, kind
    info.uname = info.gname = "root"
    archive.addfile(info, io.BytesIO(content))


def ar_bytes(members, seconds):
    text = b"!<arch>\n"
    for name, content in members:
        text += f"{name:<16}{seconds:<12}{0:<6}{0:<6}{'100644':<8}{len(content):<10}`\n".encode()
        text += content + b"\n" * (len(content) % 2)
    return text


def deb_bytes(fields, files, seconds):
    """A Debian package; `fields` is the control file as a dictionary."""
    size = sum(len(content) for _, content, _ in files)
    control = "".join(f"{key}: {value}\n" for key, value in
                      {**fields, "Installed-Size": (size + 1023) // 1024}.items())
    sums = "".join(f"{hashlib.md5(content).hexdigest()}  {name}\n" for name, content, _ in files)
    return ar_bytes([
        ("debian-binary", b"2.0\n"),
        ("control.tar.gz", tar_bytes([("control", control.encode(), 0o644),
                                      ("md5sums", sums.encode(), 0o644)], seconds, "./")),
        ("data.tar.gz", tar_bytes(files, seconds, "./"))], seconds)

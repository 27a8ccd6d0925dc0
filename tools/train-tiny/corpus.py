"""Read Jane Austen's six novels out of Debian's package r-cran-janeaustenr, without R.

    apt-get download r-cran-janeaustenr
    python corpus.py r-cran-janeaustenr_1.0.0-1_all.deb novels.txt

An R lazy-load file (.rdb) is a row of records: four bytes that hold the length of the plain record (big-endian), then a
zlib stream of R's XDR serialisation. A novel is a vector of character strings (type 16), a line a string (type 9).
The text has been in the public domain since long; the package that carries it is under the MIT licence.
"""

import io
import struct
import subprocess
import sys
import tarfile
import zlib

STRINGS, STRING = 16, 9
NOVELS = 6


def members(deb):
    """The package's files: its data part is a tar archive, whatever it is compressed with."""
    data = subprocess.run(["dpkg-deb", "--fsys-tarfile", deb], check=True, stdout=subprocess.PIPE).stdout
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        for member in archive:
            if member.isfile():
                yield member.name, archive.extractfile(member).read()


def records(rdb):
    """Every record of a lazy-load file, unpacked."""
    while len(rdb) > 4:
        stream = zlib.decompressobj()
        yield stream.decompress(rdb[4:]) + stream.flush()
        rdb = stream.unused_data


def strings(record):
    """The strings of a record that is a vector of strings, else nothing."""
    if record[:2] != b"X\n":
        return []
    version, at = struct.unpack_from(">i", record, 2)[0], 14
    if version >= 3:  # the native encoding's name follows the header
        at += 4 + struct.unpack_from(">i", record, at)[0]
    kind, count = struct.unpack_from(">Ii", record, at)
    if kind & 0xFF != STRINGS:
        return []
    at, lines = at + 8, []
    for _ in range(count):
        kind, length = struct.unpack_from(">Ii", record, at)
        assert kind & 0xFF == STRING, "a vector of strings holds something else"
        at += 8
        lines.append(record[at : at + max(length, 0)])
        at += max(length, 0)
    return lines


def novels(deb):
    """The novels as bytes, in the order of the package's file, each with its lines joined."""
    for name, content in members(deb):
        if name.endswith(".rdb"):
            texts = [b"\n".join(lines) + b"\n" for lines in map(strings, records(content)) if len(lines) > 1000]
            if texts:
                return texts
    raise SystemExit(f"{deb}: no novels in it")


if __name__ == "__main__":
    deb, out = sys.argv[1:]
    texts = novels(deb)
    assert len(texts) == NOVELS, f"expected {NOVELS} novels, found {len(texts)}"
    with open(out, "wb") as file:
        file.write(b"".join(texts))
    print(f"{len(texts)} novels, {sum(map(len, texts))} bytes -> {out}")

"""The kind of a file, found from its first bytes, so that a file that is no table is refused.

A CSV text has no signature, so a file with any known signature is refused, and the message names
its kind.  No message shows anything else of the file.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from ..errors import InvalidInput
from ..util.files import require_regular_file

HEAD = 4096
"""Number of first bytes from which the kind of a file is found."""


@dataclass(frozen=True)
class Kind:
    """A kind of file.

    `name` says in words what it is.  `endings` are the file endings under which this program reads
    it, empty if it does not; then `remedy` says what to do.
    """

    name: str
    endings: tuple[str, ...] = ()
    remedy: str = "save the table as CSV in UTF-8"


_UNPACK = "unpack it, and give the table itself"
_SAVE_AS_PARQUET = "save the table as Parquet or as CSV in UTF-8"
_RESAVE = "open it where it was made, and save it as CSV in UTF-8"

GZIP = Kind("a file packed by gzip", (".csv.gz", ".tsv.gz"))
XZ = Kind("a file packed by xz", (".csv.xz", ".tsv.xz"))
BZIP2 = Kind("a file packed by bzip2", (".csv.bz2", ".tsv.bz2"))
PARQUET = Kind("a Parquet file", (".parquet",))
STATA = Kind("a Stata file", (".dta",))
SAS = Kind("a SAS data set", (".sas7bdat",))
SAS_TRANSPORT = Kind("a SAS transport file", (".xpt",))
SPSS = Kind("an SPSS file", (".sav", ".zsav"))
SPSS_PORTABLE = Kind("an SPSS portable file", (".por",))
EXCEL = Kind("an Excel workbook", (".xlsx", ".xlsm"))
OLD_OFFICE = Kind(
    "an Excel workbook of before 2007 (.xls), or one with a password",
    (),
    "save it as .xlsx or as CSV",
)
ZIP = Kind("a zip archive", (), _UNPACK)
UTF_16 = Kind("text in UTF-16", (), "save it in UTF-8: in Excel as 'CSV UTF-8'")
UTF_32 = Kind("text in UTF-32", (), "save it in UTF-8")
BINARY = Kind("binary data", (), _RESAVE)
XML = Kind("XML or HTML", (), _RESAVE)
JSON = Kind("JSON", (), _SAVE_AS_PARQUET)
NUMPY = Kind("a NumPy file", (), _SAVE_AS_PARQUET)
R = Kind("R data", (), 'in R: write.csv(table, "table.csv", row.names = FALSE)')

_SIGNATURES: tuple[tuple[bytes, Kind], ...] = (
    (b"\x1f\x8b", GZIP),
    (b"\xfd7zXZ\0", XZ),
    (b"BZh", BZIP2),
    (b"\x28\xb5\x2f\xfd", Kind("a file packed by Zstandard", (), _UNPACK)),
    (b"\x04\x22\x4d\x18", Kind("a file packed by LZ4", (), _UNPACK)),
    (b"\x5d\0\0", Kind("a file packed by LZMA", (), _UNPACK)),
    (b"\x1f\x9d", Kind("a file packed by compress", (), _UNPACK)),
    (b"7z\xbc\xaf\x27\x1c", Kind("a 7-Zip archive", (), _UNPACK)),
    (b"Rar!\x1a\x07", Kind("a RAR archive", (), _UNPACK)),
    (b"PK\x05\x06", ZIP),
    (b"PAR1", PARQUET),
    (b"PARE", Kind("an encrypted Parquet file", (), "decrypt it first")),
    (b"ARROW1", Kind("an Arrow (Feather) file", (), _SAVE_AS_PARQUET)),
    (b"FEA1", Kind("a Feather file", (), _SAVE_AS_PARQUET)),
    (b"ORC", Kind("an ORC file", (), _SAVE_AS_PARQUET)),
    (b"Obj\x01", Kind("an Avro file", (), _SAVE_AS_PARQUET)),
    (b"\x89HDF\r\n\x1a\n", Kind("an HDF5 file", (), _SAVE_AS_PARQUET)),
    (b"CDF\x01", Kind("a NetCDF file", (), _SAVE_AS_PARQUET)),
    (b"CDF\x02", Kind("a NetCDF file", (), _SAVE_AS_PARQUET)),
    (b"MATLAB 5.0", Kind("a MATLAB file", (), _SAVE_AS_PARQUET)),
    (b"MATLAB 7.3", Kind("a MATLAB file", (), _SAVE_AS_PARQUET)),
    (
        b"SQLite format 3\0",
        Kind("an SQLite database", (), "give a query in a file that ends in .sql"),
    ),
    (b"<stata_dta>", STATA),
    (b"HEADER RECORD*******", SAS_TRANSPORT),
    (b"$FL2", SPSS),
    (b"$FL3", SPSS),
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", OLD_OFFICE),
    (b"\x09\x08", OLD_OFFICE),
    (b"\x09\x04\x06", OLD_OFFICE),
    (b"RDX2\n", R),
    (b"RDX3\n", R),
    (b"RDA2\n", R),
    (b"RDA3\n", R),
    (b"X\n\0\0", R),
    (b"A\n2\n", R),
    (b"A\n3\n", R),
    (b"\x93NUMPY", NUMPY),
    (b"%PDF", Kind("a PDF file", (), _RESAVE)),
    (b"{\\rtf", Kind("an RTF text", (), _RESAVE)),
    (b"\x89PNG", Kind("an image", (), _RESAVE)),
    (b"\xff\xd8\xff", Kind("an image", (), _RESAVE)),
    (b"GIF8", Kind("an image", (), _RESAVE)),
    (b"\x7fELF", Kind("a program", (), "give the table")),
    (
        b"version https://git-lfs",
        Kind("a pointer of Git LFS, and not the file itself", (), "run: git lfs pull"),
    ),
    (b"-----BEGIN ", Kind("a key or a certificate", (), "give the table")),
    (b"\xff\xfe\0\0", UTF_32),
    (b"\0\0\xfe\xff", UTF_32),
    (b"\xff\xfe", UTF_16),
    (b"\xfe\xff", UTF_16),
)
_BY_ENDING = {
    ".rds": R,
    ".rda": R,
    ".rdata": R,
    ".npz": NUMPY,
    ".ods": Kind("an OpenDocument sheet", (), "save it as .xlsx or as CSV"),
    ".xlsb": Kind("a binary Excel workbook", (), "save it as .xlsx or as CSV"),
}
"""Kinds known by the ending, as their first bytes are only those of an archive or a packed file."""
# version 104 to 115, byte order, type, a zero
_OLD_STATA = re.compile(rb"[\x68-\x73][\x01\x02][\x01\x02]\0")
_PICKLE = re.compile(rb"\x80[\x02-\x05]")
_SAS_START = b"\0" * 12 + b"\xc2\xea\x81\x60"
_SAS_OTHER_START = b"\0" * 12 + b"\xc2\xea\x81"
_MARKUP = re.compile(rb"<[!?A-Za-z]")
_JSON_START = re.compile(rb"\{\s*[\"}]|\[\s*([\[{\"\]0-9-]|(true|false|null)\b)")
_SQL = re.compile(
    rb"(--[^\n]*\n\s*|/\*.*?\*/;?\s*)*(insert\s+into|create\s+(table|database)|drop\s+table)\s",
    re.I | re.S,
)
_ARFF = re.compile(rb"(%[^\n]*\n\s*)*@relation\b", re.IGNORECASE)
_BOM = b"\xef\xbb\xbf"
_CONTROL = re.compile(rb"[\0-\x08\x0e-\x1f\x7f]")


def detect_file_kind(head: bytes) -> Kind | None:
    """Find the kind of a file from its first :data:`HEAD` bytes; None for what may be a text.

    An Excel workbook is a zip archive, and is known by the names of the files in it.
    """
    if head.startswith(b"PK\x03\x04"):
        if b"xl/" in head or b"[Content_Types].xml" in head[:64]:
            return EXCEL
        return ZIP
    for start, kind in _SIGNATURES:
        if head.startswith(start):
            return kind
    return _detect_kind_by_pattern(head) or _detect_kind_of_text(head)


def _detect_kind_by_pattern(head: bytes) -> Kind | None:
    """Find kinds without a fixed start: some of their first bytes vary, or the signature stands
    further on.
    """
    if _OLD_STATA.match(head):
        return STATA
    if head.startswith(_SAS_START):
        return SAS
    if head.startswith(_SAS_OTHER_START):
        return Kind("a SAS catalogue", (), "give the data set that it belongs to")
    if _PICKLE.match(head):
        return Kind("a Python pickle", (), _SAVE_AS_PARQUET)
    if b"SPSS PORT FILE" in head[:512]:
        return SPSS_PORTABLE
    if head[8:12] == b"DUCK":
        return Kind("a DuckDB database", (), _SAVE_AS_PARQUET)
    if head[257:262] == b"ustar":
        return Kind("a tar archive", (), _UNPACK)
    return None


def _detect_kind_of_text(head: bytes) -> Kind | None:
    """Find kinds of text that are no CSV, such as JSON, and bytes that no text has."""
    start = head.removeprefix(_BOM).lstrip()
    if _MARKUP.match(start):
        return XML
    if _JSON_START.match(start):
        return JSON
    if _ARFF.match(start):
        return Kind("an ARFF file", (), "save the table as CSV in UTF-8")
    if _SQL.match(start):
        return Kind(
            "statements in SQL",
            (),
            "load them into a database, and export the table as CSV in UTF-8",
        )
    if _looks_like_utf_16(head):
        return UTF_16
    first_line = head.partition(b"\n")[0]
    if b"\0" in first_line:
        return BINARY
    return None


def _looks_like_utf_16(head: bytes) -> bool:
    """Whether many of the even bytes are NUL and hardly any of the odd ones, or the other way
    round, as in UTF-16 without a byte-order mark.
    """
    fewer, more = sorted((head[0::2].count(0), head[1::2].count(0)))
    return more > 0.2 * len(head) and fewer < 0.02 * len(head)


def kind_of_file(path: str | Path) -> Kind | None:
    """Find the kind of a readable file, by its ending or else by its first bytes.

    None for what may be a text; InvalidInput if the file is not readable.
    """
    place = require_regular_file("path", path)
    if (known := _BY_ENDING.get(place.suffix.lower())) is not None:
        return known
    try:
        with place.open("rb") as file:
            return detect_file_kind(file.read(HEAD))
    except OSError as error:
        raise InvalidInput(
            "path", place, f"cannot be read: {error.strerror}", "check the path and the file"
        ) from None


def require_file_kind(path: str | Path, wanted: Kind) -> Path:
    """Return the path of a readable file of the kind that its ending says.

    Otherwise an InvalidInput, which names what the file is.
    """
    place, found = Path(path), kind_of_file(path)
    if found == wanted:
        return place
    if found is None:
        raise InvalidInput(
            "path", place, f"cannot be read: not {wanted.name}", "check the path and the file"
        )
    raise unexpected_kind_error(place, found)


def unexpected_kind_error(place: Path, found: Kind) -> InvalidInput:
    """Return the refusal of a file that is of another kind than its ending says."""
    remedy = found.remedy
    if found.endings:
        remedy = f"give it a name that ends in {' or '.join(found.endings)}"
    return InvalidInput(
        "path", place, f"cannot be read as {place.suffix.lower()}: it is {found.name}", remedy
    )


def control_characters(line: bytes) -> bool:
    """Whether a line of the first row holds characters that no text has."""
    return _CONTROL.search(line) is not None


__all__ = [
    "HEAD",
    "Kind",
    "control_characters",
    "detect_file_kind",
    "kind_of_file",
    "require_file_kind",
    "unexpected_kind_error",
]

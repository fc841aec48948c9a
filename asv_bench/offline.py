"""Make the page that `asv publish` wrote whole without a network: its scripts beside it, no address left in it.

    python asv_bench/offline.py [HTML] [--cache FOLDER]

The page loads its libraries from the net, and without one shows an error and nothing else. They are all on npm, under
the MIT licence: `npm pack` fetches each once into the cache, and needs the net that once.
"""

import argparse
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

SUITE = Path(__file__).parent
CACHE = Path.home() / ".cache" / "nnflat" / "npm"
LIBRARIES = {  # file beside the page: (package, file in it)
    "js/jquery.js": ("jquery@3.3.1", "dist/jquery.min.js"),
    "js/jquery.flot.js": ("flot@0.8.3", "jquery.flot.js"),
    "js/jquery.flot.time.js": ("flot@0.8.3", "jquery.flot.time.js"),
    "js/jquery.flot.selection.js": ("flot@0.8.3", "jquery.flot.selection.js"),
    "js/jquery.flot.categories.js": ("flot@0.8.3", "jquery.flot.categories.js"),
    "js/jquery.flot.orderBars.js": ("flot-orderbars@1.0.0", "js/jquery.flot.orderBars.js"),
    "js/stupidtable.js": ("stupid-table-plugin@1.1.3", "stupidtable.min.js"),
    "js/md5.js": ("blueimp-md5@2.19.0", "js/md5.min.js"),
    "js/bootstrap.js": ("bootstrap@3.1.1", "dist/js/bootstrap.min.js"),
    "css/bootstrap.css": ("bootstrap@3.1.1", "dist/css/bootstrap.min.css"),
    **{
        f"fonts/glyphicons-halflings-regular.{kind}": (
            "bootstrap@3.1.1",
            f"dist/fonts/glyphicons-halflings-regular.{kind}",
        )
        for kind in ("woff", "ttf")
    },
}
REMOTE = re.compile(r'<(script|link)\b[^>]*?(src|href)="(https?://[^"]+)"[^>]*>')


def archive(package: str, cache: Path) -> Path:
    """Return the archive of an npm package, fetched where the cache lacks it."""
    name, _, version = package.rpartition("@")
    path = cache / f"{name}-{version}.tgz"
    if not path.exists():
        if shutil.which("npm") is None:
            raise OSError("npm is needed to fetch the scripts of the page once (Debian: apt install npm)")
        cache.mkdir(parents=True, exist_ok=True)
        done = subprocess.run(["npm", "pack", "--silent", package], cwd=cache, stdout=subprocess.DEVNULL, check=False)
        if done.returncode:
            raise OSError(f"npm could not fetch {package}, which the page needs once: is there a network?")
    return path


def place(page: Path, cache: Path) -> None:
    """Copy the libraries beside the page, into `vendor`."""
    for name, (package, inside) in LIBRARIES.items():
        target = page / "vendor" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        with tarfile.open(archive(package, cache)) as tar:
            target.write_bytes(tar.extractfile(f"package/{inside}").read())


def local(tag: re.Match[str]) -> str:
    """Return the tag of a script or style sheet with its address that of the copy beside the page."""
    kind, attribute, address = tag.groups()
    stem = address.rpartition("/")[2].lower().replace(".min.", ".").replace("jquery-3.3.1", "jquery")
    names = {name.rpartition("/")[2].lower(): name for name in LIBRARIES}
    if stem not in names:
        raise ValueError(f"the page loads {address}, which is not among the libraries of offline.py")
    rest = ' rel="stylesheet"' if kind == "link" else ""
    return f'<{kind}{rest} {attribute}="vendor/{names[stem]}">'


def rewrite(page: Path) -> None:
    """Point every tag of the index that loads from the net at the copies."""
    index = page / "index.html"
    index.write_text(REMOTE.sub(local, index.read_text(encoding="utf-8")), encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("html", nargs="?", type=Path, default=SUITE / "html", help="what asv publish wrote")
    parser.add_argument("--cache", type=Path, default=CACHE, help="where npm's archives are kept")
    options = parser.parse_args()
    try:
        place(options.html, options.cache)
    except OSError as error:
        print(f"{error}; {options.html / 'report.html'} needs neither", file=sys.stderr)
        return 1
    rewrite(options.html)
    return 0


if __name__ == "__main__":
    sys.exit(main())

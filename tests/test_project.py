"""What must hold for the repository as a whole."""

import re
import subprocess
import tomllib
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
REQUIREMENTS = sorted((ROOT / "requirements").glob("*.txt"))
MODULES = [path for path in (ROOT / "src").rglob("*.py") if "_pb2" not in path.name]

# Brackets keep the patterns from finding themselves.
INDEX_HOST = re.compile(rb"\b(py[p]i|python[h]osted|np[m]js|de[b]ian)\.(org|com)\b")
HOME_PATH = re.compile(rb"(?<![\w.~}])/(roo[t]|hom[e]/\w+|User[s]/\w+)/")
SAYS_NOTHING = {"base", "common", "factory", "helper", "helpers", "manager", "misc", "util", "utils"}


def tracked_files() -> Iterator[Path]:
    """Yield the files that git knows here."""
    command = ["git", "-c", "safe.directory=*", "ls-files", "-z"]
    listing = subprocess.run(command, cwd=ROOT, check=True, capture_output=True).stdout
    yield from (path for name in listing.decode().split("\0") if name and (path := ROOT / name).is_file())


def pins(file: Path) -> Iterator[tuple[Requirement, int]]:
    """Yield each requirement in `file` and the number of its hashes."""
    for line in file.read_text().replace("\\\n", " ").splitlines():
        text, *hashes = line.split("--hash=sha256:")
        if text.strip() and not text.lstrip().startswith("#"):
            yield Requirement(text.strip()), len(hashes)


def wanted() -> Iterator[tuple[str, Requirement]]:
    """Yield each requirement that pyproject.toml names, with the set that pins it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    served = [project["project"]["dependencies"], *project["project"]["optional-dependencies"].values()]
    for name, texts in {"serve": chain(*served), **project["dependency-groups"]}.items():
        for requirement in map(Requirement, texts):
            if requirement.name != "paddlewheel":
                yield name, requirement


@pytest.mark.parametrize("pattern", [INDEX_HOST, HOME_PATH], ids=["package index", "home folder"])
def test_no_tracked_file_names_a_place(pattern: re.Pattern[bytes]) -> None:
    """No file names the host of a package index or somebody's home: both differ from machine to machine."""
    named = {
        path.relative_to(ROOT): match[0] for path in tracked_files() if (match := pattern.search(path.read_bytes()))
    }
    assert not named


@pytest.mark.parametrize("file", REQUIREMENTS, ids=lambda file: file.stem)
def test_every_requirement_is_pinned_with_hashes(file: Path) -> None:
    """An installation can bring nothing but the files that were pinned."""
    for requirement, hashes in pins(file):
        assert [specifier.operator for specifier in requirement.specifier] == ["=="], requirement
        assert hashes > 0, requirement


@pytest.mark.parametrize(("name", "requirement"), list(wanted()), ids=str)
def test_pins_are_what_pyproject_asks_for(name: str, requirement: Requirement) -> None:
    """After a change of pyproject.toml, scripts/lock has been run."""
    file = ROOT / "requirements" / f"{name}.txt"
    versions = [pin.specifier for pin, _ in pins(file) if canonicalize_name(pin.name) == requirement.name]
    assert versions
    assert all(requirement.specifier.contains(str(version).removeprefix("==")) for version in versions)


@pytest.mark.parametrize("module", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_modules_are_short_and_named_after_a_concept(module: Path) -> None:
    """A module is one concept: under 300 lines, with a name that says which."""
    assert len(module.read_text().splitlines()) < 300
    assert module.stem not in SAYS_NOTHING

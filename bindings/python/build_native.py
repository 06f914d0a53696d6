"""Compiles the extension without further tools: build_native.py LIBRARY_DIR OUTPUT_DIR.

LIBRARY_DIR has libtopdeck.a, which `cargo build -p topdeck-ffi` builds. The package in OUTPUT_DIR
is complete: add OUTPUT_DIR to PYTHONPATH. setup.py compiles with the same flags.
"""

import os
import pathlib
import shutil
import subprocess
import sys
import sysconfig

HERE = pathlib.Path(__file__).resolve().parent
INCLUDE = HERE.parent / "c"
COMPILE = ["-O2", "-fPIC", "-pthread", "-Wall", "-Wextra", "-Wno-missing-field-initializers"]
# Symbols of the library stay private; the module stays loaded: its threads have pointers to it.
LINK = ["-Wl,--exclude-libs,ALL", "-Wl,--gc-sections", "-Wl,-z,nodelete"]
LIBRARIES = ["gcc_s", "m", "dl", "rt", "pthread"]


def build(library: pathlib.Path, output: pathlib.Path) -> pathlib.Path:
    """Builds the package and returns the path of the module."""
    package = output / "topdeck"
    package.mkdir(parents=True, exist_ok=True)
    for source in (HERE / "topdeck").iterdir():
        if source.suffix in (".py", ".pyi", ".typed"):
            shutil.copy(source, package)
    module = package / "_native.abi3.so"
    # Another run may use the existing module.
    made = package / f".{os.getpid()}.so"
    command = [
        os.environ.get("CC", "cc"), "-shared", *COMPILE, "-Werror",
        f"-I{sysconfig.get_path('include')}", f"-I{INCLUDE}",
        str(HERE / "topdeck/_native.c"), str(library / "libtopdeck.a"), *LINK,
        *(f"-l{name}" for name in LIBRARIES), "-o", str(made),
    ]
    subprocess.run(command, check=True)
    made.rename(module)
    return module


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    print(build(pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()))

"""Builds the extension with setuptools, for wheels; metadata is in pyproject.toml.

TOPDECK_LIBRARY_DIR is the directory of libtopdeck.a; without it, cargo builds the library of the
repository that this directory is a part of.
"""

import os
import pathlib
import subprocess
import sys

from setuptools import Extension, setup

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import build_native  # noqa: E402


def library_dir() -> pathlib.Path:
    named = os.environ.get("TOPDECK_LIBRARY_DIR")
    if named:
        return pathlib.Path(named)
    root = HERE.parents[1]
    subprocess.run(
        ["cargo", "build", "--release", "--locked", "-p", "topdeck-ffi"], cwd=root, check=True
    )
    return pathlib.Path(os.environ.get("CARGO_TARGET_DIR", root / "target")) / "release"


# Only commands that compile need the library.
needs_library = any(command.startswith(("build", "bdist", "develop", "install", "editable"))
                    for command in sys.argv[1:])
setup(
    ext_modules=[
        Extension(
            "topdeck._native",
            ["topdeck/_native.c"],
            include_dirs=[str(build_native.INCLUDE)],
            extra_objects=[str(library_dir() / "libtopdeck.a")] if needs_library else [],
            extra_compile_args=build_native.COMPILE,
            extra_link_args=build_native.LINK,
            libraries=build_native.LIBRARIES,
            py_limited_api=True,
        )
    ],
    options={"bdist_wheel": {"py_limited_api": "cp310"}},
)

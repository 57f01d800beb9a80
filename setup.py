"""Wheels with the compiled kernels in them, a library for every instruction set; and the README as an index shows it.

Everything else is in pyproject.toml.

Without a C++ compiler the wheel has none and runs anywhere: kernels are compiled at first use then, or torch does the
work. An editable installation never has them: its sources change.
"""

from __future__ import annotations

import importlib.util
import os
import re
import sys
import tomllib
from pathlib import Path
from types import ModuleType

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

NATIVE = Path("weftc_runtime", "kernels", "native")


def building() -> ModuleType:
    """The module that knows how the kernels are compiled, without the package around it, which needs torch."""
    path = Path(__file__).parent / "runtime" / NATIVE / "building.py"
    spec = importlib.util.spec_from_file_location("weftc_kernel_building", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def ships() -> bool:
    """Whether the kernels can be compiled here, and nobody wants it otherwise."""
    return os.environ.get("WEFTC_SHIP_KERNELS", "").lower() not in ("off", "0", "no") and building().can_ship()


class Packages(Distribution):
    """With kernels the wheel is for machines like this one."""

    def has_ext_modules(self) -> bool:
        return ships()


class BuildWithKernels(build_py):
    """Copies the packages, and compiles the kernels beside their sources."""

    shipped: tuple[str, ...] = ()

    def run(self) -> None:
        super().run()
        if self.editable_mode or not ships():
            return
        module = building()
        self.shipped = tuple(str(path) for path in module.ship(Path(self.build_lib) / NATIVE / module.SHIPPED.name))

    def get_outputs(self, include_bytecode: bool = True) -> list[str]:
        return [*super().get_outputs(include_bytecode), *self.shipped]


class WheelOfAnyPython(bdist_wheel):
    """Kernels know nothing of Python: any version of it."""

    def get_tag(self) -> tuple[str, str, str]:
        return "py3", "none", super().get_tag()[2]


def readme() -> str:
    """The README for a package index, where relative links lead nowhere.

    They lead to the repository under [project.urls] of pyproject.toml; while that names none, they are plain text.
    """
    here = Path(__file__).parent
    project = tomllib.loads((here / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    base = project.get("urls", {}).get("Repository", "").rstrip("/")

    def absolute(link: re.Match[str]) -> str:
        picture, text, target = link.groups()
        if "://" in target:
            return link[0]
        if not base:
            return "" if picture else text
        return f"{picture}[{text}]({base}/{'raw' if picture else 'blob'}/v{project['version']}/{target})"

    return re.sub(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)", absolute, (here / "README.md").read_text(encoding="utf-8"))


setup(
    distclass=Packages,
    cmdclass={"build_py": BuildWithKernels, "bdist_wheel": WheelOfAnyPython},
    long_description=readme(),
    long_description_content_type="text/markdown",
)

"""Java classes of our own in the JVM of Spark, without a jar that somebody has to install.

What takes too many calls from Python, or is needed where Python cannot call, is written in Java in
a file next to the modules of a package. The compiler is Janino, which every Spark carries for the
code of its queries: Java as it was before generics and lambdas.

Tests: ``tests/spark/test_executor_classes.py``.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import resources
from typing import Any, Final
from weakref import WeakKeyDictionary

from py4j.protocol import Py4JError

from seamark._common.logs import logger_named

log = logger_named("seamark.pipeline")


@dataclass(frozen=True)
class CompiledClass:
    """A class that a JVM has compiled and loaded."""

    source: str
    _gateway: Any
    _compiler: Any
    _class: Any

    def new(self, *arguments: object) -> Any:
        """An object, made by the one public constructor that the class has."""
        gateway = self._gateway
        given = gateway.new_array(gateway.jvm.java.lang.Object, len(arguments))
        for place, argument in enumerate(arguments):
            given[place] = argument
        return self._class.getConstructors()[0].newInstance(given)

    def bytecodes(self) -> dict[str, bytes]:
        """The class and those inside it as the JVM loads them, by name."""
        compiled = self._compiler.getBytecodes()
        return {str(name): bytes(compiled.get(name)) for name in compiled}


def compile_class(gateway: Any, package: str, name: str, loader: Any) -> CompiledClass:
    """The class in ``name.java`` beside a package's modules, in that package of Java or in none.

    It sees what the class loader sees. Raises Py4JError where it cannot be compiled, and TypeError
    where Spark has no such compiler.
    """
    source = resources.files(package).joinpath(f"{name}.java").read_text("utf-8")
    compiler = gateway.jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(loader)
    compiler.cook(source)
    names = [str(each) for each in compiler.getBytecodes()]
    [full_name] = [each for each in names if each.rpartition(".")[2] == name]
    loaded = compiler.getClassLoader().loadClass(full_name)
    return CompiledClass(source, gateway, compiler, loaded)


_classes: Final[WeakKeyDictionary[Any, dict[tuple[str, str], CompiledClass | None]]] = (
    WeakKeyDictionary()
)
"""By the connection to a JVM: what was compiled there; None where that failed."""


def class_if_any(gateway: Any, package: str, name: str, beside: Any) -> CompiledClass | None:
    """The same, compiled once in a JVM; None where it cannot be, for work that can do without it.

    It sees what the class loader of an object of Spark's, ``beside``, sees.
    """
    known = _classes.setdefault(gateway, {})
    if (package, name) not in known:
        try:
            loader = beside.getClass().getClassLoader()
            known[package, name] = compile_class(gateway, package, name, loader)
        except (Py4JError, TypeError) as error:  # a class that is not there is a package to py4j
            log.info("%s is not used: %s", name, str(error).partition("\n")[0])
            known[package, name] = None
    return known[package, name]

"""Java classes of our own in the JVMs of executors, without a jar that somebody has to install.

Python on an executor cannot call the JVM beside it, so what only the JVM can do is written in Java.
The compiler is Janino, which every Spark carries for the code of its queries; the executors get the
classes as a jar that the driver adds.

Tests: ``tests/spark/test_executor_classes.py``.
"""

from __future__ import annotations

import hashlib
import threading
import zipfile
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

_known: Final[WeakKeyDictionary[SparkContext, dict[str, Any]]] = WeakKeyDictionary()
_lock: Final = threading.Lock()


def executor_object(spark: SparkSession, package: str, name: str, *arguments: object) -> Any:
    """An object that tasks can use, of the class in ``name.java`` beside a package's modules.

    The class has one public constructor, which is given the arguments. Py4JError where the class
    cannot be compiled or added.
    """
    context = spark.sparkContext
    with _lock:
        classes = _known.setdefault(context, {})
        if name not in classes:
            source = resources.files(package).joinpath(f"{name}.java").read_text("utf-8")
            classes[name] = _added(context, name, source)
    gateway, jvm = cast("Any", context._gateway), cast("Any", context._jvm)
    given = gateway.new_array(jvm.java.lang.Object, len(arguments))
    for place, argument in enumerate(arguments):
        given[place] = argument
    return classes[name].getConstructors()[0].newInstance(given)


def _added(context: SparkContext, name: str, source: str) -> Any:
    """Compile a class and give it to the executors."""
    any_context: Any = context
    compiler = any_context._jvm.org.codehaus.janino.SimpleCompiler()
    # the loader of Spark itself: a thread's own may be anybody's
    compiler.setParentClassLoader(any_context._jsc.sc().getClass().getClassLoader())
    compiler.cook(source)
    compiled = {
        str(each): bytes(compiler.getBytecodes().get(each)) for each in compiler.getBytecodes()
    }
    version = hashlib.sha256(source.encode()).hexdigest()[:8]
    jar = Path(any_context._temp_dir, f"seamark-{name}-{version}.jar")
    with zipfile.ZipFile(jar, "w") as archive:
        for each, code in compiled.items():
            archive.writestr(f"{each.replace('.', '/')}.class", code)
    any_context._jsc.addJar(str(jar))
    [main] = [each for each in compiled if each.rpartition(".")[2] == name]
    return compiler.getClassLoader().loadClass(main)

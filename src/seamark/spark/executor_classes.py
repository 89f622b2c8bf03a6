"""Java classes of our own in the JVMs of executors.

Python on an executor cannot call the JVM beside it, so what only the JVM can do is written in Java.
The executors get the classes as a jar that the driver adds.

Tests: ``tests/spark/test_executor_classes.py``.
"""

from __future__ import annotations

import hashlib
import threading
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

from seamark.spark.java_classes import CompiledClass, compile_class

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
            classes[name] = _added(context, package, name)
    return classes[name].new(*arguments)


def _added(context: SparkContext, package: str, name: str) -> CompiledClass:
    """Compile a class and give it to the executors."""
    any_context: Any = context
    # the loader of Spark itself: a thread's own may be anybody's
    loader = any_context._jsc.sc().getClass().getClassLoader()
    compiled = compile_class(any_context._gateway, package, name, loader)
    version = hashlib.sha256(compiled.source.encode()).hexdigest()[:8]
    jar = Path(any_context._temp_dir, f"seamark-{name}-{version}.jar")
    with zipfile.ZipFile(jar, "w") as archive:
        for each, code in compiled.bytecodes().items():
            archive.writestr(f"{each.replace('.', '/')}.class", code)
    any_context._jsc.addJar(str(jar))
    return compiled

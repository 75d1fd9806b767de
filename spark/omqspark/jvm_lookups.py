"""What pyspark asks the JVM for by name, kept: its classes and their static methods.

A plan of ours is some thousand calls, and for each of them pyspark looks up `functions` anew, by a
search through all jars for classes of that name in each package that it imports, and then the
method, by reflection: a third of all that goes to the JVM (ADR 0099). An attribute that
the view of the JVM has itself is not looked up. What a name means does not change while a JVM runs.
"""

from __future__ import annotations

from typing import Any, Final

from py4j.java_gateway import JavaClass, JavaMember, JVMView  # type: ignore[import-untyped]

CLASSES: Final = (
    "functions", "org.apache.spark.sql.functions", "PythonUtils", "PythonSQLUtils",
    "org.apache.spark.sql.classic.SparkSession", "org.apache.spark.sql.expressions.Window")


class Remembered:
    """A class of the JVM; its static methods are looked up once."""

    def __init__(self, java: JavaClass) -> None:
        self._java = java

    def __call__(self, *arguments: Any) -> Any:
        """A new object: pyspark makes a session so where none is left."""
        return self._java(*arguments)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._java, name)
        if isinstance(found, JavaMember):  # a field could change
            setattr(self, name, found)
        return found


def remember(jvm: JVMView) -> None:
    """From now on these classes are not looked up. One that this pyspark does not have is left out:
    whoever asks for it gets the error then."""
    for name in CLASSES:
        found = getattr(jvm, name)
        if isinstance(found, JavaClass):
            setattr(jvm, name, Remembered(found))

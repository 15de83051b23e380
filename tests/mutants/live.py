"""A mutant in a process: in modules already imported, or in a module that is still to be imported.

What a test computed while it was imported, and what runs in processes that start anew, stays as
it was.
"""

import functools
import gc
import importlib.machinery
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

from numba.core.caching import NullCache
from numba.core.dispatcher import Dispatcher

from tests.mutants.points import ROOT, Mutant, changed_tree


class Imported:
    """What has been imported: functions whose code can be replaced, kernels, caches."""

    def __init__(self) -> None:
        gc.unfreeze()  # the command line freezes what it has imported, and nobody would list that
        objects = [o for o in gc.get_objects() if not isinstance(o, ModuleType)]
        self.functions = [
            o for o in objects if isinstance(o, FunctionType) and _ours(o.__module__, "fedboost")
        ]
        self.kernels = [
            o
            for o in objects
            if isinstance(o, Dispatcher) and _ours(o.py_func.__module__, "fedboost")
        ]
        self.caches = [
            o
            for o in objects
            if isinstance(o, functools._lru_cache_wrapper)
            and _ours(getattr(o, "__module__", None), "fedboost", "tests")
        ]

    def change(self, mutant: Mutant) -> None:
        """Replace the code of the mutant's functions; ValueError where that cannot be done."""
        path = ROOT / mutant.path
        compiled = compile(changed_tree(mutant, path.read_bytes()), str(path), "exec")
        codes = dict(_codes(compiled))
        changed = set()
        for function in self.functions:
            old = function.__code__
            if old.co_filename == compiled.co_filename:
                new = codes.get((old.co_qualname, old.co_firstlineno), old)
                if new != old:
                    function.__code__ = new
                    changed.add(function)
        if not changed:
            raise ValueError(f"no function of {mutant.path} holds line {mutant.line}")
        self._compile_anew(changed)
        for cache in self.caches:
            cache.cache_clear()

    def _compile_anew(self, changed: set[FunctionType]) -> None:
        """Forget the machine code of changed kernels and of those that call them."""
        stale = {kernel for kernel in self.kernels if kernel.py_func in changed}
        while more := {k for k in self.kernels if k not in stale and _called(k) & stale}:
            stale |= more
        kernel: Any
        for kernel in stale:
            kernel._cache = NullCache()
            kernel._make_finalizer()()
            kernel._reset_overloads()
            kernel._can_compile = True


def _ours(module: Any, *packages: str) -> bool:
    return isinstance(module, str) and module.split(".")[0] in packages


def _called(kernel: Any) -> set[Any]:
    names = kernel.py_func.__globals__
    named = (names.get(name) for name in kernel.py_func.__code__.co_names)
    return {value for value in named if isinstance(value, Dispatcher)}


def _codes(code: CodeType) -> Any:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield (constant.co_qualname, constant.co_firstlineno), constant
            yield from _codes(constant)


def import_changed(mutant: Mutant) -> None:
    """Have the mutant's module imported as changed; its kernels and its importers' compile anew."""
    path = ROOT / mutant.path
    tree = changed_tree(mutant, path.read_bytes())
    loader: Any = importlib.machinery.SourceFileLoader
    dispatcher: Any = Dispatcher
    read, cached = loader.get_code, dispatcher.enable_caching
    module = mutant.path.removesuffix(".py").replace("/", ".")
    parent, _, stem = module.rpartition(".")

    def get_code(self: Any, name: str) -> Any:
        return compile(tree, str(path), "exec") if self.path == str(path) else read(self, name)

    def enable_caching(self: Any) -> None:
        text = Path(self.py_func.__code__.co_filename).read_text()
        if not (module in text or f"from {parent} import" in text) or stem not in text:
            cached(self)

    loader.get_code = get_code
    dispatcher.enable_caching = enable_caching

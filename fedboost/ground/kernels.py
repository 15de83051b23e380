"""Compiled functions: `@kernel` marks them, and the first call of one loads numba.

Importing a module with kernels costs nothing: a coordinator never loads numba.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any, TypeVar, cast

F = TypeVar("F", bound=Callable[..., Any])

_marked: dict[Any, Kernel] = {}  # by the function as Python sees it
_binding = threading.RLock()


class Kernel:
    """A function that numba compiles, or reads from the disk, when it is first called."""

    def __init__(self, function: Callable[..., Any], *, is_inlined: bool) -> None:
        self.function = function
        self.is_inlined = is_inlined  # into the kernels that use it; Python does not call it

    def __call__(self, *args: Any) -> Any:
        return self.compiled(*args)

    @property
    def name(self) -> str:
        """Module and function of the kernel."""
        return f"{self.function.__module__}.{self.function.__qualname__}"

    @cached_property
    def compiled(self) -> Any:
        """Return numba's dispatcher; it replaces this kernel and its callees in their modules."""
        from fedboost.ground import kernel_files

        with _binding:
            if "compiled" in self.__dict__:  # another thread was first
                return self.__dict__["compiled"]
            stamp = self.stamp
            names: dict[str, Any] = self.function.__globals__
            for name, inner in self.direct_callees():
                names[name] = inner.compiled
            dispatcher = kernel_files.dispatcher(self.function, stamp, is_inlined=self.is_inlined)
            if names.get(self.function.__name__) is self:
                names[self.function.__name__] = dispatcher
            self.__dict__["compiled"] = dispatcher
            return dispatcher

    @cached_property
    def stamp(self) -> str:
        """Return the SHA-256 of everything the machine code depends on: code, constants and
        callees.

        It is equal in every copy of the program with the same kernel, in any folder.
        """
        import numpy as np

        code = self.function.__code__
        digest = hashlib.sha256(repr((self.name, self.is_inlined, code.co_varnames)).encode())
        digest.update(code.co_code + repr((code.co_consts, code.co_names)).encode())
        for name in code.co_names:
            value = self.function.__globals__.get(name)
            if isinstance(value, bool | int | float | str | tuple | np.generic):
                digest.update(repr((name, value)).encode())
            elif isinstance(value, np.ndarray):
                digest.update(repr((name, value.dtype, value.shape)).encode() + value.tobytes())
        for name, inner in self.direct_callees():
            digest.update(f"{name}={inner.stamp}".encode())
        return digest.hexdigest()

    def parts(self) -> Iterator[Kernel]:
        """Yield the kernels that this one calls, and the kernels that those call."""
        for _, inner in self.direct_callees():
            yield inner
            yield from inner.parts()

    def direct_callees(self) -> Iterator[tuple[str, Kernel]]:
        """Yield the kernels that this one calls, with their names in its module."""
        for name in self.function.__code__.co_names:
            value = self.function.__globals__.get(name)
            callee = (
                value if isinstance(value, Kernel) else _marked.get(getattr(value, "py_func", None))
            )
            if callee is not None:
                yield name, callee


def kernel(function: F) -> F:
    """Mark a function as a kernel: numba compiles it, to run without the interpreter's lock."""
    return _mark_kernel(function, is_inlined=False)


def inlined(function: F) -> F:
    """Mark a function that becomes part of each kernel that calls it."""
    return _mark_kernel(function, is_inlined=True)


def marked_kernels() -> tuple[Kernel, ...]:
    """Return every kernel of the modules imported so far."""
    return tuple(_marked.values())


def _mark_kernel(function: F, *, is_inlined: bool) -> F:
    _marked[function] = Kernel(function, is_inlined=is_inlined)
    return cast(F, _marked[function])

"""Calls a function when a module is imported first, so that no kernel imports what its user does not need."""

import importlib.util
import sys


def after(name, call):
    """Calls `call(module)` after the import of the module `name`, or at once if it is imported already."""
    module = sys.modules.get(name)
    if module is None:
        sys.meta_path.insert(0, _Watcher(name, call))
    else:
        call(module)


class _Watcher:
    def __init__(self, name, call):
        self._name = name
        self._call = call

    def find_spec(self, name, _path=None, _target=None):
        if name != self._name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, self._call)
        return spec


class _Loader:
    def __init__(self, loader, call):
        self._loader = loader
        self._call = call

    def __getattr__(self, name):
        return getattr(self._loader, name)

    def create_module(self, spec):
        return self._loader.create_module(spec)

    def exec_module(self, module):
        self._loader.exec_module(module)
        self._call(module)

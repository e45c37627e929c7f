"""Let each parameter in the reference have its own type and default.

Where one line of a docstring describes several parameters, griffe gives all of them the type and
default of the first: "cv (Backbone, default: 'auto')".
"""

from typing import Any

import griffe


class OwnDefaults(griffe.Extension):
    """Correct the parameters of functions and classes when all of the package is loaded."""

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        """Go through all objects once."""
        _correct(pkg)


def _correct(scope: griffe.Object) -> None:
    for member in scope.members.values():
        if member.is_alias:
            continue
        if isinstance(member, griffe.Function | griffe.Class) and member.docstring is not None:
            _correct_docstring(member, member.docstring)
        _correct(member)  # type: ignore[arg-type]


def _correct_docstring(owner: griffe.Function | griffe.Class, docstring: griffe.Docstring) -> None:
    docstring.parser = griffe.Parser.numpy
    docstring.parser_options = {"warnings": False}
    signature = {parameter.name: parameter for parameter in owner.parameters}
    types = {str(parameter.annotation) for parameter in owner.parameters}
    for section in docstring.parsed:
        if section.kind is not griffe.DocstringSectionKind.parameters:
            continue
        for entry in section.value:
            known = signature.get(entry.name)
            if known is None:
                continue
            entry.value = known.default
            if str(entry.annotation) in types:  # of the signature, not of the docstring
                entry.annotation = known.annotation

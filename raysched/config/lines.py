"""YAML in, plain values and their line numbers out.

Nodes are composed with PyYAML's safe loader and turned into values here, so that keys given twice are seen and every
value keeps its line. Aliases, anchors and `<<` work. What could exhaust the machine is refused with a reason."""

from pathlib import Path as FilePath
from typing import Final

import yaml
from yaml.constructor import SafeConstructor
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode
from yaml.reader import ReaderError

from raysched.config.problems import ConfigError, Lines, Path, Problem, Problems, path_text, shown

MAX_BYTES: Final = 1 << 20  # a cluster of a thousand shares needs a third of this
MAX_VALUES: Final = 200_000  # after aliases are followed: ten aliases of ten aliases of … must not fill the memory
MAX_DEPTH: Final = 40  # the deepest documented key is at 7; a scenario adds 3

_TAG = "tag:yaml.org,2002:"
_TEXT_TAGS = {_TAG + "str", _TAG + "timestamp", _TAG + "value"}


def read_yaml(path: str | FilePath) -> tuple[dict[str, object], Lines]:
    """Read a YAML file whose top is a mapping. Times stay text. Raises ConfigError."""
    data, problems = read_document(path)
    problems.check()
    return data, problems.lines


def read_document(path: str | FilePath) -> tuple[dict[str, object], Problems]:
    """Like `read_yaml`, but problems that leave a readable document (a key given twice) are returned with it."""
    file = str(path)
    return parse_document(_text(FilePath(path), file), file)


def parse_document(text: str, file: str) -> tuple[dict[str, object], Problems]:
    """Parse YAML text; `file` is its name in errors. Raises ConfigError."""
    node = _composed(text, file)
    if node is None:
        raise _failed(file, None, "the file is empty; a configuration starts with `version: 1`")
    reading = _Reading(file)
    value = reading.read(node)
    if not isinstance(value, dict):
        raise _failed(file, 1, f"the top of the file must be a mapping, got {shown(value)}")
    return value, reading.problems


def _failed(file: str, line: int | None, reason: str) -> ConfigError:
    return ConfigError([Problem(file, line, "", reason)])


def _text(path: FilePath, file: str) -> str:
    try:
        with path.open("rb") as source:
            raw = source.read(MAX_BYTES + 1)
    except IsADirectoryError:
        raise _failed(file, None, "is a directory, not a file") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise _failed(file, None, f"cannot be read: {reason}") from None
    if len(raw) > MAX_BYTES:
        raise _failed(file, None, f"is larger than {MAX_BYTES} bytes")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise _failed(file, line, f"is not UTF-8 text (byte {error.start})") from None


class _Loader(yaml.SafeLoader):
    """Composes nodes only, and not deeper than MAX_DEPTH."""

    depth = 0

    def compose_node(self, parent: Node | None, index: int) -> Node | None:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
            raise yaml.composer.ComposerError(None, None, f"is nested deeper than {MAX_DEPTH} levels", mark)
        try:
            return super().compose_node(parent, index)
        finally:
            self.depth -= 1


def _composed(text: str, file: str) -> Node | None:
    loader: _Loader | None = None
    try:
        loader = _Loader(text)
        return loader.get_single_node()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        reason = ", ".join(part for part in (error.context, error.problem) if part)
        raise _failed(file, 1 if mark is None else mark.line + 1, f"is not valid YAML: {reason}") from None
    except ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise _failed(file, line, f"is not valid YAML: {shown(chr(error.character))} is not allowed") from None
    # PyYAML lets chr() fail on escapes such as "\UFFFFFFFF".
    except (ValueError, OverflowError) as error:
        line = 1 if loader is None else loader.line + 1
        raise _failed(file, line, f"is not valid YAML: {error}") from None


class _Reading:
    """One pass over the nodes of a document."""

    def __init__(self, file: str) -> None:
        self.table: dict[Path, int] = {}
        self.problems = Problems(Lines(file, self.table))
        self.scalars = SafeConstructor()
        self.count = 0
        self.open: list[int] = []

    def read(self, node: Node, path: Path = ()) -> object:
        """The value of `node`, which stands at `path`."""
        self.table.setdefault(path, node.start_mark.line + 1)
        self._guard(node, path)
        if isinstance(node, ScalarNode):
            return self._scalar(node, path)
        self.open.append(id(node))
        try:
            if isinstance(node, SequenceNode):
                return [self._item(item, (*path, number)) for number, item in enumerate(node.value)]
            return self._mapping(node, path)
        finally:
            self.open.pop()

    def _guard(self, node: Node, path: Path) -> None:
        self.count += 1
        if self.count > MAX_VALUES:
            self.problems.add((), f"has more than {MAX_VALUES} values once its aliases are followed")
        elif id(node) in self.open:
            self.problems.add(path, "refers to itself through an alias")
        elif len(self.open) > MAX_DEPTH:
            self.problems.add(path, f"is nested deeper than {MAX_DEPTH} levels once its aliases are followed")
        else:
            return
        self.problems.check()

    def _item(self, node: Node, path: Path) -> object:
        self.table[path] = node.start_mark.line + 1
        return self.read(node, path)

    def _scalar(self, node: ScalarNode, path: Path) -> object:
        tag = node.tag
        if tag == _TAG + "null":
            return None
        try:
            if tag == _TAG + "bool":
                return self.scalars.construct_yaml_bool(node)
            if tag == _TAG + "int":
                return self.scalars.construct_yaml_int(node)
            if tag == _TAG + "float":
                return self.scalars.construct_yaml_float(node)
        except (ValueError, KeyError, IndexError, OverflowError):
            self.problems.add(path, f"{shown(node.value)} is not a number or a truth value")
            return None
        if tag not in _TEXT_TAGS:
            self.problems.add(path, f"the tag {shown(tag)} is not allowed")
        return self._clean(node.value, path)

    def _clean(self, text: str, path: Path) -> str:
        # Lone surrogates cannot be stored, NUL cannot be passed to a process: both only come from escapes.
        if "\0" in text or any("\ud800" <= char <= "\udfff" for char in text):
            self.problems.add(path, f"{shown(text)} is not text")
            return ""
        return text

    def _mapping(self, node: Node, path: Path) -> dict[str, object]:
        assert isinstance(node, MappingNode)
        result: dict[str, object] = {}
        own: dict[str, int] = {}
        self._merge(node, path, result)
        for key_node, value_node in node.value:
            if key_node.tag == _TAG + "merge":
                continue
            key = self._key(key_node, path)
            if key is None:
                continue
            line = key_node.start_mark.line + 1
            if key in own:
                self.problems.found.append(_twice(self.problems, (*path, key), line, own[key]))
                continue
            own[key] = line
            self.table[*path, key] = line
            result[key] = self.read(value_node, (*path, key))
        return result

    def _merge(self, node: MappingNode, path: Path, into: dict[str, object]) -> None:
        for key_node, value_node in node.value:
            if key_node.tag != _TAG + "merge":
                continue
            sources = value_node.value if isinstance(value_node, SequenceNode) else [value_node]
            for source in sources:
                merged = self.read(source, path)
                if not isinstance(merged, dict):
                    self.problems.add(path, f"`<<` must name a mapping, got {shown(merged)}")
                    continue
                for key, value in merged.items():
                    into.setdefault(key, value)

    def _key(self, node: Node, path: Path) -> str | None:
        if isinstance(node, ScalarNode) and node.tag in _TEXT_TAGS:
            return self._clean(node.value, path)
        given = node.value if isinstance(node, ScalarNode) else [] if isinstance(node, SequenceNode) else {}
        name = given if isinstance(given, str) else shown(given)
        line = node.start_mark.line + 1
        hint = f"the key {name} must be text; write it in quotes" if isinstance(given, str) else "a key must be text"
        self.problems.found.append(Problem(self.problems.lines.file, line, path_text(path), hint))
        return None


def _twice(problems: Problems, path: Path, line: int, first: int) -> Problem:
    return Problem(problems.lines.file, line, path_text(path), f"duplicate key, already given on line {first}")

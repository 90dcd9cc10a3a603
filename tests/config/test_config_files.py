"""Files that are no configuration at all, or only almost YAML."""

from collections.abc import Callable
from pathlib import Path

import pytest

from raysched.config import ConfigError, load_config, read_yaml

Faults = Callable[[str], list[str]]


def fault(path: Path) -> str:
    with pytest.raises(ConfigError) as error:
        load_config(path)
    assert len(error.value.problems) == 1
    return str(error.value).replace(str(path.parent) + "/", "")


def written(tmp_path: Path, content: bytes) -> Path:
    file = tmp_path / "c.yaml"
    file.write_bytes(content)
    return file


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    assert fault(tmp_path / "none.yaml") == "none.yaml: cannot be read: No such file or directory"


def test_a_directory(tmp_path: Path) -> None:
    (tmp_path / "dir").mkdir()
    assert fault(tmp_path / "dir") == "dir: is a directory, not a file"


@pytest.mark.parametrize("content", [b"", b"\n\n", b"# only a comment\n", b"---\n"])
def test_an_empty_file(tmp_path: Path, content: bytes) -> None:
    found = fault(written(tmp_path, content))
    assert "the file is empty" in found or "the top of the file must be a mapping, got nothing" in found


def test_text_that_is_not_utf8(tmp_path: Path) -> None:
    assert fault(written(tmp_path, b"version: 1\ncluster: \xff\xfe\n")) == "c.yaml:2: is not UTF-8 text (byte 20)"


def test_a_byte_order_mark_is_no_problem(tmp_path: Path) -> None:
    assert load_config(written(tmp_path, b"\xef\xbb\xbfversion: 1\npools: {p: {}}\n")).pools[0].pool == "p"


def test_a_file_of_several_megabytes(tmp_path: Path) -> None:
    assert fault(written(tmp_path, b"# filler\n" * 500_000)) == "c.yaml: is larger than 1048576 bytes"


@pytest.mark.parametrize(("text", "got"), [("- a\n- b\n", "a list"), ("text\n", "'text'"), ("3\n", "3")])
def test_the_top_must_be_a_mapping(tmp_path: Path, text: str, got: str) -> None:
    assert fault(written(tmp_path, text.encode())) == f"c.yaml:1: the top of the file must be a mapping, got {got}"


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ("version: 1\nshares: [a\n", 3, "is not valid YAML"),
        ("version: 1\n\tcluster: x\n", 2, "found character '\\t' that cannot start any token"),
        ("version: 1\n---\nversion: 1\n", 2, "but found another document"),
        ("a: *nobody\n", 1, "found undefined alias 'nobody'"),
        ("a: 'open\n", 2, "found unexpected end of stream"),
    ],
)
def test_text_that_is_not_yaml(tmp_path: Path, text: str, line: int, reason: str) -> None:
    found = fault(written(tmp_path, text.encode()))
    assert found.startswith(f"c.yaml:{line}: is not valid YAML")
    assert reason in found


@pytest.mark.parametrize("text", ['b: c\na: "\\UFFFFFFFF"\n', "b: c\na: \x07\n"])
def test_characters_that_yaml_refuses(tmp_path: Path, text: str) -> None:
    assert fault(written(tmp_path, text.encode())).startswith("c.yaml:2: is not valid YAML: ")


def test_a_key_given_twice(faults: Faults) -> None:
    text = "version: 1\npools: {p: {}}\npools:\n  q: {}\n"
    assert faults(text) == ["cluster.yaml:3: pools: duplicate key, already given on line 2"]


def test_aliases_that_would_fill_the_memory(tmp_path: Path) -> None:
    rows = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    rows += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    found = fault(written(tmp_path, "\n".join(rows).encode()))
    assert found == "c.yaml:1: has more than 200000 values once its aliases are followed"


def test_merges_that_would_fill_the_memory(tmp_path: Path) -> None:
    rows = ["a0: &a0 {x: y}"] + [f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 10)}]}}" for n in range(1, 12)]
    assert "has more than 200000 values" in fault(written(tmp_path, "\n".join(rows).encode()))


@pytest.mark.parametrize("content", [b"[" * 100_000, b"a: " * 50_000, b"{a: " * 90_000, b"- " * 90_000 + b"x"])
def test_brackets_without_end(tmp_path: Path, content: bytes) -> None:
    assert fault(written(tmp_path, content)).startswith("c.yaml:1: ")


def test_a_chain_of_aliases_is_not_followed_for_ever(tmp_path: Path) -> None:
    rows = ["a0: &a0 [x]"] + [f"a{n}: &a{n} [*a{n - 1}]" for n in range(1, 2_000)]
    assert "is nested deeper than 40 levels" in fault(written(tmp_path, "\n".join(rows).encode()))


def test_a_value_that_holds_itself(tmp_path: Path) -> None:
    assert fault(written(tmp_path, b"version: 1\npools: &p\n  q: *p\n")) == (
        "c.yaml:3: pools.q: refers to itself through an alias"
    )


@pytest.mark.parametrize("value", ["!!python/object/apply:os.getcwd []", "!!python/name:os.system ''", "!mine x"])
def test_tags_are_refused(faults: Faults, value: str) -> None:
    found = faults(f"version: 1\ncluster: {value}\npools: {{p: {{}}}}\n")
    assert any(line.startswith("cluster.yaml:2: cluster: ") for line in found)


@pytest.mark.parametrize(
    ("key", "reason"),
    [
        ("7", "the key 7 must be text; write it in quotes"),
        ("no", "the key no must be text; write it in quotes"),
        ("[a]", "a key must be text"),
        ("{a: b}", "a key must be text"),
    ],
)
def test_keys_must_be_text(faults: Faults, key: str, reason: str) -> None:
    found = faults(f"version: 1\npools: {{p: {{}}}}\ngroups:\n  ? {key}\n  : [ana]\n")
    assert found == [f"cluster.yaml:4: groups: {reason}"]


def test_text_that_cannot_be_stored(faults: Faults) -> None:
    text = 'version: 1\npools: {p: {}}\nshares:\n  a: {nominal: {}, description: "x\\0y"}\n'
    assert faults(text) == ["cluster.yaml:4: shares.a.description: 'x\\x00y' is not text"]


@pytest.mark.parametrize("number", ["9" * 5_000, "1" * 400, "0b2", "1e999", ".nan", "-.inf"])
def test_numbers_that_are_none(faults: Faults, number: str) -> None:
    found = faults(f"version: 1\npools: {{p: {{}}}}\nshares:\n  a: {{nominal: {{p: {{gpu: {number}}}}}}}\n")
    assert found[0].startswith("cluster.yaml:4: shares.a.nominal.p.gpu: ")
    assert len(found[0]) < 200


def test_any_yaml_mapping_can_be_read_with_its_lines(tmp_path: Path) -> None:
    data, lines = read_yaml(
        written(tmp_path, b"start: 2026-01-01T00:00:00Z\nat:\n  - 1s\n  - {x: [1, true, null, 0.5]}\n")
    )
    assert data == {"start": "2026-01-01T00:00:00Z", "at": ["1s", {"x": [1, True, None, 0.5]}]}
    assert (lines.line(("start",)), lines.line(("at", 1, "x", 2)), lines.line(("at", 0, "beyond"))) == (1, 4, 3)
    assert lines.under("at", 1).line(("x",)) == 4

"""From pydantic's errors to ours: every wrong key with its path and reason, and a hint at the nearest known."""

from collections.abc import Mapping, Sequence, Sized
from types import UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from raysched.config.problems import Path, Problems, nearest, shown

M = TypeVar("M", bound=BaseModel)


def validated(model: type[M], data: object, problems: Problems, at: Path = ()) -> M | None:
    """`data` as `model`; None when something is wrong, which is then in `problems`, at paths below `at`."""
    try:
        return model.model_validate(data)
    except ValidationError as error:
        for detail in error.errors(include_url=False):
            note(problems, at, model, detail)
        return None


def note(problems: Problems, at: Path, model: type[BaseModel], detail: ErrorDetails) -> None:
    """Add one pydantic error to `problems`."""
    loc = detail["loc"]
    if loc and loc[-1] == "[key]":
        loc = loc[:-1]
    # Only positions in lists are numbers; a key that is a number is shown as the text it should have been.
    path = tuple(step if isinstance(step, str) or _is_list(model, loc[:n]) else str(step) for n, step in enumerate(loc))
    problems.add(at + path, _reason(detail, model))


def _reason(detail: ErrorDetails, model: type[BaseModel]) -> str:
    context = detail.get("ctx", {})
    got = f", got {shown(detail['input'])}"
    match detail["type"]:
        case "extra_forbidden":
            return "unknown key" + nearest(detail["loc"][-1], _known_keys(model, detail["loc"][:-1]))
        case "missing":
            return "is required"
        case "value_error":
            return str(context["error"])
        case "literal_error":
            hint = nearest(detail["input"], _choices(str(context["expected"])))
            return f"must be {context['expected']}{got}" + (hint if "did you mean" in hint else "")
        case "greater_than_equal":
            return f"must be at least {context['ge']}{got}"
        case "less_than_equal":
            return f"must be at most {context['le']}{got}"
        case "too_short" | "string_too_short":
            return f"must have at least {context['min_length']}, has {_length(detail['input'])}"
        case "too_long" | "string_too_long":
            return f"must have at most {context['max_length']}, has {_length(detail['input'])}"
        case "string_pattern_mismatch":
            return f"must match {context['pattern']}{got}"
        case "config":
            return detail["msg"]
    return _TYPES.get(detail["type"], detail["msg"]) + got


_TYPES = {
    "string_type": "must be text (numbers in quotes)",
    "bool_type": "must be true or false",
    "int_type": "must be a whole number",
    "int_parsing_size": "must be a smaller number",
    "list_type": "must be a list",
    "dict_type": "must be a mapping",
    "model_type": "must be a mapping",
    "model_attributes_type": "must be a mapping",
    "invalid_key": "the key must be text (write it in quotes)",
}


def _length(value: object) -> int:
    return len(value) if isinstance(value, Sized) else 0


def _choices(expected: str) -> list[str]:
    return [part.strip("'") for part in expected.replace(" or ", ", ").split(", ")]


def _known_keys(model: type[BaseModel], loc: Sequence[str | int]) -> list[str]:
    found = _at(model, loc)
    return [f.alias or name for name, f in found.model_fields.items()] if _is_model(found) else []


def _is_list(model: type[BaseModel], loc: Sequence[str | int]) -> bool:
    return get_origin(_at(model, loc)) is list


def _at(annotation: Any, loc: Sequence[str | int]) -> Any:
    """The type that stands at `loc` below a type; None where the walk ends in a plain value."""
    for step in loc:
        annotation = _plain(annotation)
        if _is_model(annotation):
            fields = annotation.model_fields.items()
            annotation = next((field.annotation for name, field in fields if step in (name, field.alias)), None)
        else:
            arguments = get_args(annotation)
            annotation = arguments[-1] if arguments and get_origin(annotation) in (dict, list) else None
    return _plain(annotation)


def _plain(annotation: Any) -> Any:
    """A type without Annotated and Optional; of a union, the model."""
    while get_origin(annotation) in (Annotated, Union, UnionType):
        options = [option for option in get_args(annotation) if option is not type(None)]
        if get_origin(annotation) is Annotated:
            options = options[:1]
        annotation = next((option for option in options if _is_model(_plain(option))), options[0])
    return annotation


def _is_model(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def as_keys(data: object) -> object:
    """A mapping of any kind as a dict, so that callers may pass what they have."""
    return dict(data) if isinstance(data, Mapping) else data

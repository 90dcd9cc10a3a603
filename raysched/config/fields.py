"""The kinds of fields a configuration is made of: names, quantities, durations, priorities, presets.

Each reads what people write and gives what the core holds; what cannot be read raises ValueError with the reason."""

import difflib
from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, Final, Literal, TypeVar, get_args

from pydantic import AfterValidator, Field, PlainValidator, ValidationError
from pydantic_core import InitErrorDetails, PydanticCustomError

from raysched.config.problems import shown
from raysched.core.model import LOWEST_PRIORITY, BorrowLimit
from raysched.core.units import (
    CPU,
    GPU,
    MEMORY,
    MILLI,
    MODEL_PREFIX,
    Amounts,
    BadQuantity,
    parse_amount,
    parse_duration_ms,
)

MOST: Final = 1_000_000  # the largest plain count: far above any cluster, far below what 64 bits hold
MAX_NAME: Final = 128

K = TypeVar("K")
T = TypeVar("T")
Workload = Literal["notebook", "training", "service", "batch", "evaluation"]
PresetName = Literal["none", "baige", "xirang", "tione", "aws"]
PRESET_NAMES: Final[tuple[PresetName, ...]] = get_args(PresetName)


def read_name(text: str) -> str:
    """A name that can stand in a path, an actor name and a marker: printable, without spaces, `/`, `:` or `*`."""
    return _name(text, "/:*")


def read_user(text: str) -> str:
    """A user id, as the identity provider writes it: printable, without spaces."""
    return _name(text, "")


def _name(text: str, refused: str) -> str:
    if not text or len(text) > MAX_NAME:
        raise ValueError(f"must have 1 to {MAX_NAME} characters, has {len(text)}")
    wrong = next((c for c in text if not c.isprintable() or c.isspace() or c in refused), None)
    if wrong is not None:
        raise ValueError(f"{shown(text)} may not contain {shown(wrong)}")
    return text


def read_duration(given: object) -> int:
    """Milliseconds, 0 allowed."""
    try:
        return parse_duration_ms(given)
    except ValueError as error:
        raise ValueError(_reason(error, f"{shown(given)} is not a duration (want e.g. 90s, 15m, 2h, 1d)")) from None


def read_positive_duration(given: object) -> int:
    """Milliseconds, more than 0."""
    ms = read_duration(given)
    if ms == 0:
        raise ValueError("must be longer than 0")
    return ms


def read_amount(kind: str, given: object) -> int:
    """An amount of `kind` (thousandths, bytes or a count)."""
    try:
        return parse_amount(kind, given)
    except ValueError as error:
        # The path already names the kind.
        raise ValueError(_reason(error, f"{shown(given)} is not a quantity").removeprefix(f"{kind}: ")) from None


def _reason(error: ValueError, otherwise: str) -> str:
    text = str(error)
    return text if isinstance(error, BadQuantity) and len(text) <= 200 else otherwise


def read_whole_gpu(given: object) -> int:
    """Whole GPUs, in thousandths."""
    try:
        milli = parse_amount(GPU, given)
    except ValueError:
        raise ValueError(f"must be a whole number, got {shown(given)}") from None
    if milli % MILLI:
        raise ValueError(f"must be a whole number, got {shown(given)}")
    return milli


def read_amounts(given: object) -> Amounts:
    """A mapping of resource kinds to quantities. Raises a ValidationError that names each wrong kind."""
    if not isinstance(given, dict):
        raise ValueError(f"must be a mapping of resource kinds, got {shown(given)}")
    if not given:
        raise ValueError("names no resource kind; write e.g. {gpu: 8}")
    return each_of(given, lambda kind, value: read_amount(checked_kind(kind), value))


def checked_kind(kind: str) -> str:
    """A resource kind, refused when it looks like a mistyped one."""
    if kind in (GPU, CPU, MEMORY):
        return kind
    if kind.startswith(MODEL_PREFIX) and len(kind) > len(MODEL_PREFIX):
        return MODEL_PREFIX + read_name(kind.removeprefix(MODEL_PREFIX))
    # 0.7 catches gpus and memroy and lets npu and tpu pass: those are countable resources that Ray knows.
    close = difflib.get_close_matches(kind, (GPU, CPU, MEMORY), n=1, cutoff=0.7)
    if close or kind == "mem":
        raise ValueError(f"is no resource kind (did you mean {close[0] if close else MEMORY}?)")
    return read_name(kind)


def each_of(given: dict[object, object], read: Callable[[str, object], T]) -> dict[str, T]:
    """Read every value of a mapping by its key; all wrong ones are reported together, each at its key."""

    def checked(key: object, value: object) -> T:
        if not isinstance(key, str):
            raise ValueError("the key must be text; write it in quotes")
        return read(key, value)

    return {str(key): value for key, value in _each(given.items(), checked)}


def each_in(given: Sequence[object], read: Callable[[object], T]) -> list[T]:
    """Read every item of a list; all wrong ones are reported together, each at its number."""
    return [value for _, value in _each(enumerate(given), lambda _, item: read(item))]


def _each(given: Iterable[tuple[K, object]], read: Callable[[K, object], T]) -> list[tuple[K, T]]:
    result: list[tuple[K, T]] = []
    wrong: list[InitErrorDetails] = []
    for key, value in given:
        step = key if isinstance(key, int) else str(key)
        try:
            result.append((key, read(key, value)))
        except ValidationError as error:
            wrong += [located((step, *d["loc"]), d["msg"], d["input"]) for d in error.errors(include_url=False)]
        except ValueError as error:
            wrong.append(located((step,), str(error), value))
    raise_all(wrong)
    return result


def located(loc: tuple[str | int, ...], reason: str, value: object) -> InitErrorDetails:
    """An error at `loc` below the field that is being read."""
    return InitErrorDetails(type=PydanticCustomError("config", "{reason}", {"reason": reason}), loc=loc, input=value)


def raise_all(wrong: list[InitErrorDetails]) -> None:
    """Raise one ValidationError for all of `wrong`, or return."""
    if wrong:
        raise ValidationError.from_exception_data("config", wrong)


def read_priority(given: object) -> int:
    """`P3`, `p3` or 3."""
    number = given[1:] if isinstance(given, str) and given[:1] in ("P", "p") else given
    if isinstance(number, str) and number.isascii() and number.isdigit() and len(number) <= 2:
        number = int(number)
    if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number <= LOWEST_PRIORITY:
        raise ValueError(f"must be P0 (highest) to P{LOWEST_PRIORITY}, got {shown(given)}")
    return number


def read_borrow_limit(given: object) -> BorrowLimit:
    """`50%` of the own nominal, amounts per kind, or -1 for no limit."""
    if given == -1 and not isinstance(given, bool):
        return BorrowLimit()
    if isinstance(given, dict):
        return BorrowLimit(amounts=read_amounts(given))
    if isinstance(given, str) and given.endswith("%"):
        digits = given[:-1].strip()
        if digits.isascii() and digits.isdigit() and len(digits) <= 6:
            return BorrowLimit(percent=int(digits))
    raise ValueError(f"must be a percentage such as 50%, amounts such as {{gpu: 8}}, or -1, got {shown(given)}")


def no_repeats(names: list[str]) -> list[str]:
    """Each name once."""
    raise_all([located((n,), f"{name} is listed twice", name) for n, name in enumerate(names) if name in names[:n]])
    return names


def not_empty(names: list[str]) -> list[str]:
    """At least one."""
    if not names:
        raise ValueError("must name at least one")
    return names


Name = Annotated[str, AfterValidator(read_name)]
User = Annotated[str, AfterValidator(read_user)]
Users = Annotated[list[User], AfterValidator(no_repeats)]
Texts = Annotated[list[Annotated[str, Field(min_length=1)]], AfterValidator(no_repeats)]
Workloads = Annotated[list[Workload], AfterValidator(not_empty), AfterValidator(no_repeats)]
Duration = Annotated[int, PlainValidator(read_duration)]
PositiveDuration = Annotated[int, PlainValidator(read_positive_duration)]
Cpu = Annotated[int, PlainValidator(lambda given: read_amount(CPU, given))]
Memory = Annotated[int, PlainValidator(lambda given: read_amount(MEMORY, given))]
WholeGpu = Annotated[int, PlainValidator(read_whole_gpu)]
Quantities = Annotated[Amounts, PlainValidator(read_amounts)]
Priority = Annotated[int, PlainValidator(read_priority)]
BorrowField = Annotated[BorrowLimit, PlainValidator(read_borrow_limit)]
Count = Annotated[int, Field(ge=0, le=MOST)]
PositiveCount = Annotated[int, Field(ge=1, le=MOST)]

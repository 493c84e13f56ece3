"""The arguments of a tool: their JSON schema from the function's type hints, and the check of what a model wrote."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, get_type_hints

import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model
from pydantic.errors import PydanticSchemaGenerationError
from pydantic.json_schema import GenerateJsonSchema

COMPLAINTS = 5  # of what is wrong, the model is told so many


class WrongArguments(Exception):
    """The model's arguments do not fit; the text says which, for the model."""


def read_object(written: str) -> dict[str, Any]:
    """The JSON object that a model wrote. Its members are for somebody else to check. WrongArguments if it is none."""
    try:
        read = orjson.loads(written or "{}")
    except orjson.JSONDecodeError as error:
        raise WrongArguments(f"they are no JSON: {error}") from None
    if not isinstance(read, dict):
        raise WrongArguments("they are no object")
    return read


class Arguments:
    """The parameters of a function. TypeError where a model cannot give them.

    Those whose type is `given` are not the model's to give: `filled_in` names them.
    """

    def __init__(self, name: str, function: Callable[..., Any], given: type) -> None:
        hints = get_type_hints(function, include_extras=True)
        fields: dict[str, tuple[Any, Any]] = {}
        filled_in: list[str] = []
        for parameter in inspect.signature(function).parameters.values():
            if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
                raise TypeError(f"the tool {name} must not have the parameter {parameter}: a model names its arguments")
            hint = hints.get(parameter.name)
            if hint is None:
                raise TypeError(f"the parameter {parameter.name} of the tool {name} needs a type")
            if hint is given:
                filled_in.append(parameter.name)
                continue
            default = ... if parameter.default is parameter.empty else parameter.default
            # named by number: a parameter may have the name of something that models have themselves
            fields[f"field_{len(fields)}"] = (hint, Field(default, alias=parameter.name))
        self.filled_in = tuple(filled_in)
        made: Any = create_model
        try:
            self._model: type[BaseModel] = made(name, __config__=ConfigDict(extra="forbid"), **fields)
        except PydanticSchemaGenerationError as error:
            raise TypeError(f"the tool {name} has a parameter of a type that JSON cannot carry: {error}") from None

    def schema(self) -> dict[str, Any]:
        """As a model is told it."""
        schema = self._model.model_json_schema(by_alias=True, schema_generator=_WithoutTitles)
        schema.pop("title", None)
        return {"type": "object", "properties": {}, **schema}

    def read(self, written: str) -> dict[str, Any]:
        """What the model wrote as JSON, as the function's types want it. WrongArguments otherwise, also for NaN and the like, which
        pydantic would take: a row of the conversation cannot say them."""
        try:
            checked = self._model.model_validate_json(written or "{}")
        except ValidationError as error:
            raise WrongArguments(_complaints(error)) from None
        read_object(written)
        return {str(field.alias): getattr(checked, name) for name, field in self._model.model_fields.items()}


class _WithoutTitles(GenerateJsonSchema):
    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


def _complaints(error: ValidationError) -> str:
    found = error.errors(include_url=False, include_context=False, include_input=False)
    return "; ".join(f"{'.'.join(map(str, one['loc'])) or 'arguments'}: {one['msg']}" for one in found[:COMPLAINTS])

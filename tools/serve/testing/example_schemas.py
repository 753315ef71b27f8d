# SPDX-License-Identifier: MIT
"""JSON schemas of the kinds that JSONSchemaBench collects: settings, events, calls of functions,
records of people, manifests, trees. All strings and arrays are bounded, so that answers end."""


def text(most=12, **more):
    return {"type": "string", "maxLength": most, **more}


def matching(pattern):
    return {"type": "string", "pattern": pattern}


def of_format(name):
    return {"type": "string", "format": name}


def closed(required=None, **properties):
    """An object of these members alone; without `required` it has all of them."""
    return {"type": "object", "properties": properties, "additionalProperties": False,
            "required": list(properties) if required is None else required}


def listing(items, most=3, **more):
    return {"type": "array", "items": items, "maxItems": most, **more}


LEVELS = ["debug", "info", "warning", "error"]
NODE = {"$ref": "#/$defs/node"}
EXPRESSION = {"$ref": "#/$defs/expression"}

SCHEMAS = {
    "person": closed(name=text(20), age={"type": "integer", "minimum": 0, "maximum": 120},
                     email=of_format("email"), tags=listing({"enum": ["old", "young", "tall"]})),
    "nested arrays": closed(matrix=listing(listing({"type": "integer", "minimum": -9, "maximum": 9},
                                                   minItems=2), minItems=2)),
    "enums": closed(level={"enum": LEVELS}, code={"enum": [1, 2.5, "x", None, True]},
                    mode={"const": "auto"}),
    "patterns": closed(version=matching("^[0-9]{1,2}\\.[0-9]{1,2}\\.[0-9]{1,2}$"),
                       slug=matching("^[a-z]{1,8}(-[a-z0-9]{1,4}){0,2}$"),
                       phone=matching("^\\+[0-9]{1,3} [0-9]{4,8}$")),
    "tree": {"$defs": {"node": closed(["name"], name=text(8), children=listing(NODE, 2))},
             "$ref": "#/$defs/node"},
    "linked list": {"$defs": {"node": closed(value={"type": "integer", "minimum": 0, "maximum": 99},
                                             next={"anyOf": [NODE, {"type": "null"}]})},
                    **closed(list=NODE)},
    "expression": {"$defs": {"expression": {"anyOf": [
        {"type": "integer", "minimum": 0, "maximum": 9},
        closed(op={"enum": ["+", "-", "*"]}, left=EXPRESSION, right=EXPRESSION)]}},
        **closed(value=EXPRESSION)},
    "any of": closed(contact={"anyOf": [
        closed(kind={"const": "mail"}, address=text(24)),
        closed(kind={"const": "phone"}, number=matching("^[0-9]{3,10}$")),
        {"type": "null"}]}),
    "ranges": closed(percent={"type": "number", "minimum": 0, "maximum": 100},
                     below={"type": "number", "exclusiveMaximum": -1.5, "minimum": -1000},
                     count={"type": "integer", "exclusiveMinimum": 10, "maximum": 20},
                     large={"type": "integer", "minimum": 1000, "maximum": 123456},
                     minutes={"type": "integer", "multipleOf": 15, "minimum": 0, "maximum": 720},
                     quarters={"type": "number", "multipleOf": 0.25, "minimum": -2}),
    "string lengths": closed(short=text(3, minLength=1), exact=text(5, minLength=5),
                             empty=text(0), letters=matching("^[A-Z]{2,6}$")),
    "formats": closed(day=of_format("date"), at=of_format("date-time"),
                      id=of_format("uuid"), host=of_format("ipv4")),
    "optional members": closed([], host=text(), port={"type": "integer", "minimum": 1,
                                                      "maximum": 65535},
                               tls={"type": "boolean"}, retries={"enum": [0, 1, 3]}),
    "additional members": closed(scores={
        "type": "object", "minProperties": 1, "maxProperties": 3,
        "additionalProperties": {"type": "integer", "minimum": 0, "maximum": 9}}),
    "tuple": closed(point={"type": "array", "minItems": 3, "maxItems": 3, "items": False,
                           "prefixItems": [{"type": "number", "minimum": -90, "maximum": 90},
                                           {"type": "number", "minimum": -180, "maximum": 180},
                                           text(6)]}),
    "nullable": closed(title={"type": ["string", "null"], "maxLength": 12},
                       year={"type": ["integer", "null"], "minimum": 1900, "maximum": 2100}),
    "function call": closed(name={"const": "search_flights"}, arguments=closed(
        origin=matching("^[A-Z]{3}$"), destination=matching("^[A-Z]{3}$"),
        date=of_format("date"), passengers={"type": "integer", "minimum": 1, "maximum": 9},
        cabin={"enum": ["economy", "business", "first"]})),
    "manifest": closed(apiVersion={"const": "v1"}, kind={"enum": ["Pod", "Service"]},
                       metadata=closed(["name"], name=matching("^[a-z0-9-]{1,12}$"),
                                       labels={"type": "object", "maxProperties": 2,
                                               "additionalProperties": text(6)}),
                       spec=closed(containers=listing(closed(
                           image=text(16), ports=listing({"type": "integer", "minimum": 1,
                                                          "maximum": 65535}, 2)), 2, minItems=1))),
    "event": {"$defs": {"user": closed(id={"type": "integer", "minimum": 1, "maximum": 9999},
                                       roles=listing({"enum": ["admin", "guest"]}, 2))},
              **closed(event={"enum": ["login", "logout", "purchase"]},
                       user={"$ref": "#/$defs/user"}, by={"$ref": "#/$defs/user"},
                       success={"type": "boolean"})},
    "workflow": closed(name=text(12), steps=listing({"oneOf": [
        closed(run=text(16)), closed(uses=text(16), retries={"type": "integer", "minimum": 0,
                                                            "maximum": 3})]}, 3, minItems=1)),
    "merged parts": {"allOf": [
        {"type": "object", "properties": {"id": {"type": "integer", "minimum": 0, "maximum": 999}},
         "required": ["id"]},
        {"type": "object", "properties": {"name": text(8)}, "required": ["name"]}]},
    "escaped names": closed(**{"a\"b": {"type": "boolean"}, "c\\d": {"type": "null"},
                               "\u00e9": text(4), "": {"enum": ["\n", "\"", "\U0001f600"]}}),
    "numbers": listing({"type": "number", "minimum": -0.5, "maximum": 0.5}, 4, minItems=2),
    "review": closed(rating={"type": "integer", "minimum": 1, "maximum": 5}, summary=text(40),
                     pros=listing(text(12)), cons=listing(text(12)),
                     would_buy={"type": "boolean"}),
    "menu": {"$defs": {"menu": closed(["id"], id=text(6), items=listing(
        {"anyOf": [{"$ref": "#/$defs/menu"}, closed(label=text(8)), {"type": "null"}]}, 2))},
        **closed(menu={"$ref": "#/$defs/menu"})},
}

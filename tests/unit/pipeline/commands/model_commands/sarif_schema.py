"""The part of SARIF 2.1.0 (OASIS, 2020) that `permcode scan` writes, as a JSON schema written from the specification.

Required and allowed properties, types and ranges are those of the sections named; no other property is allowed, so that
whatever is added to the output must be looked up first.
"""

from typing import Any


def _object(required: list[str], **properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "required": required,
        "properties": properties,
        "additionalProperties": False,
    }


_TEXT = {"type": "string", "minLength": 1}
_MESSAGE = _object(["text"], text=_TEXT)  # 3.11, and 3.12 multiformatMessageString
_URI = {"type": "string", "pattern": r"^([A-Za-z0-9\-._~:/?#\[\]@!$&'()*+,;=]|%[0-9A-F]{2})+$"}  # RFC 3986
_ARTIFACT_LOCATION = _object(["uri"], uri=_URI)  # 3.4
_POSITIVE = {"type": "integer", "minimum": 1}
_REGION = _object(  # 3.30
    ["startLine"],
    startLine=_POSITIVE,
    startColumn=_POSITIVE,
    endLine=_POSITIVE,
    endColumn=_POSITIVE,
    snippet=_object([], text={"type": "string"}),  # 3.3 artifactContent
)
_RULE = _object(  # 3.49 reportingDescriptor
    ["id"],
    id=_TEXT,
    name={"type": "string", "pattern": "^[A-Z][A-Za-z]+$"},
    shortDescription=_MESSAGE,
    fullDescription=_MESSAGE,
    defaultConfiguration=_object([], level={"enum": ["none", "note", "warning", "error"]}),  # 3.50
)
_REPLACEMENT = _object(  # 3.57
    ["deletedRegion"], deletedRegion=_REGION, insertedContent=_object([], text={"type": "string"})
)
_FIX = _object(  # 3.55; 3.56 artifactChange
    ["artifactChanges"],
    description=_MESSAGE,
    artifactChanges={
        "type": "array",
        "minItems": 1,
        "items": _object(
            ["artifactLocation", "replacements"],
            artifactLocation=_ARTIFACT_LOCATION,
            replacements={"type": "array", "minItems": 1, "items": _REPLACEMENT},
        ),
    },
)
_RESULT = _object(  # 3.27
    ["message"],
    ruleId=_TEXT,
    ruleIndex={"type": "integer", "minimum": -1},
    level={"enum": ["none", "note", "warning", "error"]},
    message=_MESSAGE,
    locations={
        "type": "array",
        "items": _object(  # 3.28, 3.29
            [], physicalLocation=_object([], artifactLocation=_ARTIFACT_LOCATION, region=_REGION)
        ),
    },
    rank={"type": "number", "minimum": -1.0, "maximum": 100.0},
    fixes={"type": "array", "uniqueItems": True, "items": _FIX},
    properties={"type": "object"},  # 3.8 property bag
)
_DRIVER = _object(["name"], name=_TEXT, version=_TEXT, rules={"type": "array", "items": _RULE})  # 3.19
SARIF: dict[str, Any] = _object(  # 3.13
    ["version", "runs"],
    **{"$schema": _URI},
    version={"const": "2.1.0"},
    runs={
        "type": "array",
        "items": _object(  # 3.14
            ["tool"],
            tool=_object(["driver"], driver=_DRIVER),  # 3.18
            columnKind={"enum": ["utf16CodeUnits", "unicodeCodePoints"]},
            results={"type": "array", "items": _RESULT},
            properties={"type": "object"},
        ),
    },
)

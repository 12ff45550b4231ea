"""Families of languages whose imports work in the same way."""

from typing import Literal

Family = Literal["python", "script", "java", "c", "go"]

_FAMILY_OF: dict[str, Family] = {
    "python": "python",
    "cython": "python",
    "javascript": "script",
    "typescript": "script",
    "jsx": "script",
    "tsx": "script",
    "vue": "script",
    "svelte": "script",
    "java": "java",
    "kotlin": "java",
    "groovy": "java",
    "c": "c",
    "c++": "c",
    "cpp": "c",
    "objective-c": "c",
    "objective-c++": "c",
    "opencl": "c",
    "cuda": "c",
    "go": "go",
}


def family_of(language: str) -> Family | None:
    """Return the family of a language, in any case; None if there is none."""
    return _FAMILY_OF.get(language.lower())

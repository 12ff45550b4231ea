"""HTML pages from this package's templates: values are escaped, a missing one is an error."""

from typing import Any


def page(template: str, **values: Any) -> str:
    """The template of this name, filled."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("pipeline"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(template).render(**values)

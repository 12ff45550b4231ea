"""Renders HTML pages from the templates of this package. Values are escaped; a missing value is an error."""

from typing import Any


def render_page(template: str, **values: Any) -> str:
    """Render the template of this name."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("pipeline"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(template).render(**values)

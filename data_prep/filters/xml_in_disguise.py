"""Rule on XML under another language's extension: project files, translations, bindings."""

from data_prep.documents import Rejection
from data_prep.filters.config import FiltersConfig
from data_prep.text.file import TextFile

_FIRST_BYTES = 100
_XML = frozenset({"XML", "SVG", "HTML", "XSLT", "XML Property List", "Web Ontology Language", "RDF"})


def xml_in_disguise(file: TextFile, config: FiltersConfig) -> Rejection | None:
    """Reject files that are not of an XML language, but have an XML declaration in their first 100 bytes."""
    if not config.drop_xml_in_disguise or file.language in _XML:
        return None
    where = file.data.find(b"<?xml version=", 0, _FIRST_BYTES)
    return Rejection("xml_in_disguise", float(where)) if where >= 0 else None

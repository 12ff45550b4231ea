"""The published columns of known datasets."""

from data_prep.sources.config import ColumnsConfig, Preset

# A dataset that was published in several forms has several mappings: the first whose content column a file has is
# used. Names are those of the dataset cards (huggingface.co/datasets/...).
PRESETS: dict[Preset, tuple[ColumnsConfig, ...]] = {
    # bigcode/the-stack, the-stack-dedup
    "the_stack_v1": (
        ColumnsConfig(
            content="content",
            repository="max_stars_repo_name",
            path="max_stars_repo_path",
            language="lang",
            licence="max_stars_repo_licenses",
            stars="max_stars_count",
        ),
    ),
    # bigcode/the-stack-v2: one file per row; the-stack-v2-train-*: one repository per row, its files in
    # `files`. Both are published without `content`, which the user adds from Software Heritage.
    "the_stack_v2": (
        ColumnsConfig(
            content="content",
            repository="repo_name",
            path="path",
            language="language",
            licence="detected_licenses",
            stars="star_events_count",
            files="files",
        ),
    ),
    # The original JSONL, then code-search-net/code_search_net.
    "codesearchnet": (
        ColumnsConfig(content="original_string", repository="repo", path="path", language="language"),
        ColumnsConfig(
            content="whole_func_string",
            repository="repository_name",
            path="func_path_in_repository",
            language="language",
        ),
    ),
    # bigcode/starcoderdata; its language is the name of the folder only.
    "starcoderdata": (
        ColumnsConfig(
            content="content",
            repository="max_stars_repo_name",
            path="max_stars_repo_path",
            stars="max_stars_count",
        ),
    ),
}


def column_mappings(preset: Preset | None, columns: ColumnsConfig | None) -> tuple[ColumnsConfig, ...]:
    """Return the column mappings of a table source."""
    if preset is not None:
        return PRESETS[preset]
    return (columns or ColumnsConfig(repository="repository", path="path", language="language"),)

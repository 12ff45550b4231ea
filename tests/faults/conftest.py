"""The small corpus of the distributed tests."""

from tests.distributed.conftest import prep_folder

__all__ = ["prep_folder"]

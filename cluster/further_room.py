"""Room for one more group of workers beside those that run, asked for without waiting."""

from collections.abc import Set
from contextlib import suppress
from typing import Any

from cluster.nodes import node_selector
from cluster.resources import ResourcesConfig


class FurtherRoom:
    """A request to Ray for the resources of a group, which stays until there is room: an autoscaler sees it, too."""

    def __init__(self, config: ResourcesConfig, on_gpu: bool, num_workers: int) -> None:
        self._config, self._bundles = config, [config.of_worker(on_gpu)] * num_workers
        self._asked: Any = None
        self._avoided: Set[str] = frozenset()

    def look(self, avoid: Set[str] = frozenset()) -> frozenset[str]:
        """Return the nodes (Ray's ids) that have room for the group now, none if there is none.

        No node in `avoid` is among them. The room is not kept: who wants it starts the workers at once.
        """
        from ray.util import placement_group_table

        if self._asked is None or avoid != self._avoided:
            self.close()
            self._ask(avoid)
        found = placement_group_table(self._asked)
        if found["state"] != "CREATED":
            return frozenset()
        nodes = frozenset(found["bundles_to_node_id"].values())
        self.close()
        return nodes

    def close(self) -> None:
        """Take the request back."""
        from ray.util import remove_placement_group

        if self._asked is not None:
            with suppress(Exception):  # a cluster that is lost keeps nothing, and others report the loss
                remove_placement_group(self._asked)
            self._asked = None

    def _ask(self, avoid: Set[str]) -> None:
        from ray.util import placement_group

        self._avoided = frozenset(avoid)
        self._asked = placement_group(
            self._bundles,
            strategy=self._config.placement.upper(),
            bundle_label_selector=[node_selector(avoid, is_in=False)] * len(self._bundles) if avoid else None,
        )

"""What is called what in the folder of a pretraining; docs/design.md says what each file holds."""

from cluster.journal import JOURNAL_NAME


class PretrainFiles:
    """Names in a pretraining's folder. Nothing heavy is imported here: commands that only read files need them."""

    JOURNAL = JOURNAL_NAME
    HEARTBEAT = "heartbeat"
    """Touched by the first worker while it lives."""
    WRITER_LOCK = ".writer.lock"
    """Held by the one process that writes checkpoints and the journal."""
    CHECKPOINTS = "checkpoints"
    PREP = "prep.json"
    """Names the prepared corpus that is read: beside the folder may lie several."""
    ERROR = "error.json"
    """A user's error in a worker, for the process that started it."""
    HANG = "hang.json"
    """What hung when the last attempt was ended."""
    STOP = "stop"
    """Asks the workers for a checkpoint and their end."""
    HANDOVER = "handover"
    """Asks the workers for a checkpoint and their end, after which they are started again: a node is preempted, or
    there is room for more workers."""
    DEVICE = "device.json"
    """Whether the workers use GPUs: chosen at the first start."""
    MICRO_BATCH = "micro_batch.json"
    """The lanes of a micro-batch that replaced the config's after workers ran out of memory."""
    NODES = "nodes"
    """Has an empty file for every node on which workers of the attempt run, named by Ray's id of the node."""
    GROUPS = ".groups"
    """Has a folder for each further group of workers, where several work side by side in the stage's folder: with its
    lease, requests to stop, errors and nodes. Those of the first group are in the stage's folder itself."""
    RESULT = "result.json"
    """Written last: figures of the finished training."""
    MODEL = "model"
    """The folder of the trained model."""
    MODEL_CONFIG = "config.json"
    """In a model's folder; without it that is no model."""

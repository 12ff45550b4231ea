"""What is called what in a run's folder: the one place in `pipeline` that spells these names.

A pretraining's own files are in `pretrain.files`; docs/design.md shows the whole folder.
"""

from cluster.journal import JOURNAL_NAME
from finetune.experiment import files as finetune_files


class RunFiles:
    """The folder of a run or an experiment, `--out`."""

    CONFIG = "config.yaml"
    """The resolved config that the folder belongs to."""
    LOCK = ".lock"
    """Held while a permcode process works in the folder."""
    REPORT = "report.html"
    LOGS = "logs"
    LOG = "logs/permcode.log"
    MLFLOW_STORE = "mlflow.db"
    MLFLOW_ARTIFACTS = "mlartifacts"
    MLFLOW_NOTE = ".tracked.json"
    """Which stages MLflow has completely, and the ids of the folder's runs."""


class StageFiles:
    """The folder of a stage, NAME-KEY."""

    RECORD = "STAGE.json"
    """There when the stage is finished."""
    RESULT = finetune_files.RESULT_NAME
    """Of a pretraining and of a task."""
    PREDICTIONS = finetune_files.PREDICTIONS_NAME
    """Of each job of a task."""
    JOURNAL = JOURNAL_NAME
    MODEL = "model"
    MLFLOW_NOTE = ".mlflow.json"
    REGISTERED = ".registered.json"
    """Which model of a task is in MLflow's registry."""

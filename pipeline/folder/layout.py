"""The file names of a run's folder. No other module of `pipeline` spells them out.

The files of pretraining are in `pretrain.files`; docs/design.md shows the whole folder.
"""

from cluster.journal import JOURNAL_NAME
from finetune.experiment import files as finetune_files


class RunFiles:
    """Names in the folder of a run or an experiment (`--out`)."""

    CONFIG = "config.yaml"
    """The resolved config of the run."""
    LOCK = ".lock"
    """Locked while a permcode process works in the folder."""
    REPORT = "report.html"
    LOGS = "logs"
    LOG = "logs/permcode.log"
    MLFLOW_STORE = "mlflow.db"
    MLFLOW_ARTIFACTS = "mlartifacts"
    MLFLOW_NOTE = ".tracked.json"
    """The stages that were logged to MLflow completely, and the ids of the folder's MLflow runs."""


class StageFiles:
    """Names in the folder of a stage (NAME-KEY)."""

    RECORD = "STAGE.json"
    """Exists when the stage is finished."""
    RESULT = finetune_files.RESULT_NAME
    """The result of pretraining, of a task, or of a job of a task."""
    PREDICTIONS = finetune_files.PREDICTIONS_NAME
    """The predictions of a job of a task."""
    JOURNAL = JOURNAL_NAME
    MODEL = "model"
    MLFLOW_NOTE = ".mlflow.json"
    REGISTERED = ".registered.json"
    """Notes that a task's best system was registered in MLflow's model registry."""

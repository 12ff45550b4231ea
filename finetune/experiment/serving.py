"""A finetuned system as an MLflow model that carries its own code, weights and tokenizer.

MLflow reads this file when it logs the model and when it loads it ("models from code"), in a process that may have
no permcode other than the copy inside the model.
"""

from pathlib import Path

import mlflow
from mlflow.pyfunc import PythonModel, PythonModelContext


class FinetunedSystem(PythonModel):  # type: ignore[misc]
    """An MLflow model whose `predict` accepts a DataFrame with the system's columns and returns one with answers."""

    def load_context(self, context: PythonModelContext) -> None:
        """Load the system from the model's artifacts."""
        from finetune.experiment.loaded import LoadedSystem

        self._system = LoadedSystem.load(Path(context.artifacts["system"]))

    # MLflow reads type hints of this method as a schema; ours is the signature it was logged with.
    def predict(self, context, model_input, params=None):  # type: ignore[no-untyped-def]
        """Return one answer row per input row. Raises a one-line ValueError if rows lack the system's columns."""
        import pandas

        from cluster.errors import UserError

        rows = pandas.DataFrame(model_input).to_dict(orient="records")
        try:
            answers = self._system.answer(rows)
        except UserError as error:
            raise ValueError(str(error)) from None
        return pandas.DataFrame(answers)


mlflow.models.set_model(FinetunedSystem())

"""How the model knows where tokens stand: one file per encoding, chosen by `ModelConfig.positions.kind`."""

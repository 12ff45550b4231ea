"""Training tokenizers of both kinds and encoding with them; `data_prep.tokenizer` is the way in."""

"""Training of tokenizers of both kinds and encoding with them; the public interface is `data_prep.tokenizer`."""

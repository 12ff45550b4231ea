"""The four modalities of tasks: write a text, rank candidates, label a text, or predict its tokens.

Each modality is one file: its data, the protocols of its tasks and systems, validation and test, the evaluation under
perturbations of the code, and the answers of a saved system to rows.
"""

"""What a task asks of a system: to write a text, rank candidates, label a text, or predict its tokens.

Each modality is one file: its data, what its tasks and systems offer (protocols), how systems are validated and tested,
how much they lose when the code is changed, and how a saved one answers rows.
"""

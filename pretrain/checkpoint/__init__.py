"""Checkpoints: all that the next step depends on, complete or not there at all.

`checkpoints/step-00000100/` holds

    weights-RRRRR.safetensors    float32 masters by parameter name: the pieces that rank R held
    optimizer-RRRRR.safetensors  Adam's moments, likewise
    memory-LLLLL.safetensors     segment memory of the lanes from L on
    state.json                   step, cursor, Adam's step count and other values that are no tensors
    config.json                  the whole config, the seed, and the SHA-256s of corpus and tokenizer
    model.json                   the network's shape; with tokenizer.json and the weights it is a usable model
    tokenizer.json
    COMMIT.json                  every file with size and SHA-256, written last

Nothing depends on the number of ranks that wrote it: a piece names its parameter and where in it the piece begins, and
memory is found by its lane. No file points to the newest checkpoint: every start lists and verifies the folders.
"""

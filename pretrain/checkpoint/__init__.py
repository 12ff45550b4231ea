"""Commits: everything that makes the next step, whole or not there.

`checkpoints/step-00000100/` holds

    weights-RRRRR.safetensors    float32 masters by parameter name: the pieces that rank R held
    optimizer-RRRRR.safetensors  Adam's moments, likewise
    memory-LLLLL.safetensors     segment memory of the lanes from L on
    state.json                   step, cursor, Adam's step count and what else is not a tensor
    config.json                  the whole config, the seed, corpus and tokenizer by their SHA-256
    model.json                   the network's shape: with tokenizer.json and the weights all it takes to use it
    tokenizer.json
    COMMIT.json                  every file with size and SHA-256, written last

Nothing depends on how many ranks wrote it: a piece says of which parameter it is and where it begins, a lane's memory
is found by the lane. The newest valid commit is found by looking, never by a pointer file.
"""

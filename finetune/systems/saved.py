"""A trained system as a folder that can be used anywhere: its config, all its weights, its tokenizer.

    system.json           what it is: the system's and the task's config, the shape of the base model
    model.safetensors     all parameters, float32; absent where there are none
    tokenizer.json
"""

"""The server that editors ask for completions: the protocols of llama.cpp, OpenAI and Tabby on one model."""

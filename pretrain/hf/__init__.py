"""Models to and from Hugging Face's XLNet, without importing its library."""

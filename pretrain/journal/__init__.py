"""The journal of a training: its events, the recorder that writes it, and the replay of the steps that count."""

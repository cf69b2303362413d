"""The claims of an answer: what each of its sentences says, and how far the answers drawn agree."""

"""Commands of the model: encoders, train, embed, evaluate."""

"""Networks and how they are trained: encoders, PISA, methods, training, inference, and models as ONNX files."""

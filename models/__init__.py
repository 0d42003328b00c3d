"""The built-in models, one a file, with what they need in files that begin with an underscore."""

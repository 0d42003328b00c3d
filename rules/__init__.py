"""One rule a file. The file's name is the rule's name; `detector.discover` finds it."""

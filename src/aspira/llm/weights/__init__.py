"""Where a decoder's weights come from: files, under one naming."""
